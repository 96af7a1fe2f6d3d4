"""int8 products that NVRTC miscompiles: detection in a kernel's text and in its machine code.

NVRTC joins two products of a sum into one `dp2a`, which multiplies two 16-bit numbers by two bytes and adds both products. If the
bytes of one operand are two apart in a word of memory, it takes the word itself for the two 16-bit numbers, although the upper
half of each is another byte. 12.4.127, 12.9.86, 13.0.88, 13.2.78 and 13.5.37 did, for every architecture tried from sm_70 to
sm_120, some texts in one process and not in the next. On an H100 sums were off by 256 times the sum of a neighbour. The C text is
right, so the emulator finds nothing.
"""

from __future__ import annotations

import re

from gensor_gym.codegen.cuda.plan import BlockPlan
from gensor_gym.operators.traits import is_product

APART = 2
"""Bytes from one 16-bit number of a word to the next."""

_DOT = re.compile(r"\bdp2a\.\w+\.s32\.\w+\s+%\w+, (%\w+),")
_LINE = re.compile(r"^\s*(?:@!?%\w+\s+)?([a-z][\w.:]*)\s+(\{[^}]*\}|%\w+)(.*)$", re.MULTILINE)


def is_hidden(plan: BlockPlan, index: int) -> bool:
    """Whether the compiler must not see that elements of a read come from one word: int8, two apart along the reduction."""
    read, op = plan.op.reads[index], plan.op
    bytes_meet = is_product(op) and read.tensor.dtype == "int8"
    return plan.dialect.mistakes_bytes and bytes_meet and APART in _steps(plan, index)


def _steps(plan: BlockPlan, index: int) -> set[int]:
    """Elements from a point of the reduction to the next along each reduce axis, where the read is loaded from."""
    read, tile = plan.op.reads[index], plan.shared[index]
    if tile is None:
        strides = read.axis_strides()
        return {strides[a] for a in plan.op.reduce if plan.op.extents[a] > 1}
    moved = [a for a in plan.op.reduce if plan.block[a] > 1]
    if tile.axes:
        return {stride for a, stride in zip(tile.axes, tile.strides, strict=True) if a in moved}
    return {sum(row[a] * stride for row, stride in zip(read.coefficients, tile.strides, strict=True)) for a in moved}


def raw_words(ptx: str) -> tuple[str, ...]:
    """The `dp2a` instructions of PTX text whose 16-bit operand is a word of memory, or is made of halves that are.

    No generated kernel has 16-bit integers, so each of the two numbers must have been made of one byte.
    """
    found: list[str] = []
    for function in re.split(r"(?=\.entry\b)", ptx):
        dots = list(_DOT.finditer(function))
        made = _definitions(function) if dots else {}
        found += [dot[0] for dot in dots if _is_loaded(made, dot[1])]
    return tuple(found)


def _definitions(function: str) -> dict[str, tuple[str, str]]:
    """By register: the operation that writes it last in the text, and its operands."""
    made = {}
    for line in _LINE.finditer(function):
        operation, targets, operands = line.groups()
        if not operation.startswith(("st.", "red.")):
            made.update(dict.fromkeys(re.findall(r"%\w+", targets), (operation, operands)))
    return made


def _is_loaded(made: dict[str, tuple[str, str]], register: str) -> bool:
    """Whether a register has bits of memory as they lie; a load of a signed byte extends its sign."""
    operation, operands = made.get(register, ("", ""))
    packed = operation == "mov.b32" and "{" in operands
    sources = [made.get(half, ("", ""))[0] for half in re.findall(r"%\w+", operands)] if packed else [operation]
    return any(source.startswith("ld.") and not source.endswith(".s8") for source in sources)
