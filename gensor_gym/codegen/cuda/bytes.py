"""int8 products that NVRTC miscompiles: detection in a kernel's plan and in its PTX.

NVRTC fuses two products of a sum into one `dp2a`, which multiplies two 16-bit numbers by two bytes and adds both products. If the
two bytes of an operand are two bytes apart in a word of memory, NVRTC passes the word itself as the two 16-bit numbers, although
the upper half of each number is another byte. For some texts, versions 12.4.127, 12.9.86, 13.0.88, 13.2.78 and 13.5.37 did so in
one process and not in the next, for every architecture tried from sm_70 to sm_120. On an H100, sums were wrong by 256 times the
sum of a neighbour. The C text is right, so the emulator does not detect the fault.
"""

from __future__ import annotations

import re

from gensor_gym.codegen.cuda.plan import BlockPlan
from gensor_gym.operators.traits import is_product

APART = 2
"""Distance in bytes between the two 16-bit numbers of a word of 32 bits."""

_DOT = re.compile(r"\bdp2a\.\w+\.s32\.\w+\s+%\w+, (%\w+),")
_LINE = re.compile(r"^\s*(?:@!?%\w+\s+)?([a-z][\w.:]*)\s+(\{[^}]*\}|%\w+)(.*)$", re.MULTILINE)


def is_hidden(plan: BlockPlan, index: int) -> bool:
    """Return whether to hide from the compiler that elements of the operator's input `index` share a word of memory.

    This applies to int8 products of bytes two apart.
    """
    read, op = plan.op.reads[index], plan.op
    bytes_meet = is_product(op) and read.tensor.dtype == "int8"
    return plan.dialect.mistakes_bytes and bytes_meet and APART in _steps(plan, index)


def _steps(plan: BlockPlan, index: int) -> set[int]:
    """Return the distances, in elements, between successive elements along the reduce axes.

    They are distances in the memory that input `index` is loaded from: shared memory if it is staged, else the tensor.
    """
    read, tile = plan.op.reads[index], plan.shared[index]
    if tile is None:
        strides = read.axis_strides()
        return {strides[a] for a in plan.op.reduce if plan.op.extents[a] > 1}
    moved = [a for a in plan.op.reduce if plan.block[a] > 1]
    if tile.axes:
        return {stride for a, stride in zip(tile.axes, tile.strides, strict=True) if a in moved}
    return {sum(row[a] * stride for row, stride in zip(read.coefficients, tile.strides, strict=True)) for a in moved}


def raw_words(ptx: str) -> tuple[str, ...]:
    """Return the `dp2a` instructions of PTX text that may take bytes of memory for 16-bit numbers.

    Their 16-bit operand is a word loaded from memory, or is packed from loaded halves. No generated kernel has 16-bit integers,
    so in correct code each 16-bit number is made from a single byte.
    """
    found: list[str] = []
    for function in re.split(r"(?=\.entry\b)", ptx):
        dots = list(_DOT.finditer(function))
        made = _definitions(function) if dots else {}
        found += [dot[0] for dot in dots if _is_loaded(made, dot[1])]
    return tuple(found)


def _definitions(function: str) -> dict[str, tuple[str, str]]:
    """Return, for each register of a PTX function, (operation, operands) of the last instruction in the text that writes it."""
    made = {}
    for line in _LINE.finditer(function):
        operation, targets, operands = line.groups()
        if not operation.startswith(("st.", "red.")):
            made.update(dict.fromkeys(re.findall(r"%\w+", targets), (operation, operands)))
    return made


def _is_loaded(made: dict[str, tuple[str, str]], register: str) -> bool:
    """Return whether a register contains unconverted bits of memory.

    Signed bytes do not count, because their load extends the sign.
    """
    operation, operands = made.get(register, ("", ""))
    packed = operation == "mov.b32" and "{" in operands
    sources = [made.get(half, ("", ""))[0] for half in re.findall(r"%\w+", operands)] if packed else [operation]
    return any(source.startswith("ld.") and not source.endswith(".s8") for source in sources)
