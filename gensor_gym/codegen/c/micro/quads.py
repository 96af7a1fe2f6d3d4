"""Stores of int8 results whose lanes are channels: pixels in a row are stored, and residuals read, as words of four bytes.

Stored and read byte by byte, a 1x1 convolution to 256 channels with a residual takes 2.2 times as long (ResNet-50, Zen 4).
"""

from __future__ import annotations

from gensor_gym.codegen.c.elements.quantized import finished
from gensor_gym.codegen.c.elements.words import COUNTS
from gensor_gym.codegen.c.layout.operands import Operand
from gensor_gym.codegen.c.operand import Reader
from gensor_gym.codegen.c.plan import Chunk
from gensor_gym.codegen.c.text import add
from gensor_gym.operators.epilogue import QUANTIZE

WORD = 4
"""Bytes of a word."""
_RUN = 16
"""Bytes of a run: of the widest words that one channel's pixels fill."""


def runs(reader: Reader) -> list[list[int]]:
    """Group those rows of the register tile that are adjacent pixels in memory, up to sixteen.

    Return the row numbers of each run, which has one, two or four words; the last word may be shorter. The result is empty if
    results are not stored in words of four bytes.
    """
    plan = reader.plan
    output, spatial = plan.output, plan.op.spatial
    if output.dtype != "int8" or plan.vector_is_reduced or output.lane_stride == 1 or plan.splits > 1 or plan.shift is not None:
        return []
    axis = next((a for a in spatial if a != plan.vector and output.strides[a] == 1 and plan.tiles[0][a] > 1), None)
    is_guarded = any(reader.sticks_out(a) for a in spatial)
    if axis is None or is_guarded or not plan.op.epilogue or any(chunk.width < WORD for chunk in plan.chunks):
        return []
    lines: dict[tuple[int, ...], list[int]] = {}
    for number, row in enumerate(plan.rows):
        lines.setdefault((*row[:axis], *row[axis + 1 :]), []).append(number)
    return [run for line in lines.values() for run in _split(line)]


def _split(line: list[int]) -> list[list[int]]:
    """Split a line of pixels into runs of one, two or four words."""
    found = []
    while line:
        size = next((count * WORD for count in sorted(COUNTS, reverse=True) if len(line) > (count - 1) * WORD), _RUN)
        found.append(line[:size])
        line = line[size:]
    return found


def words(reader: Reader, run: list[int], c: int, chunk: Chunk) -> tuple[list[str], dict[str, str]]:
    """Return C statements that load the int8 residuals of a run of rows as words.

    The result is (statements, residual's name -> its variable, an array of vectors). `run` are the row numbers; `c` is the index
    of the vector `chunk`.
    """
    lines, names = [], {}
    for operand in reader.plan.stages:
        if operand is not None and operand.dtype == "int8":
            names[operand.name] = name = f"{operand.name}_{run[0]}_{c}"
            lines.append(f"vec{chunk.width} {name}[{_count(run)}];")
            lines.append(f"gather_{COUNTS[_count(run)]}words_{chunk.width}({_place(reader, operand, run, chunk)}, {name});")
    return lines, names


def element(name: str, chunk: Chunk, number: int) -> str:
    """Return the C text of one row's elements, taken from the array `name` with the words of a run of rows.

    `number` is the row's position in the run.
    """
    return f"byte_of_{chunk.width}({name}[{number // WORD}], {number % WORD})"


def zero_of(reader: Reader, run: list[int], c: int) -> str:
    """Return the C variable with the zero point of a run's results in the vector number `c`; empty if pixels have several.

    Stores then add it to two vectors at once, and their saturation clips: a convolution of 56x56 from 64 to 256 channels takes
    0.95 of the time (Zen 4).
    """
    plan = reader.plan
    (zero,) = (o for o, stage in zip(plan.stages, plan.op.epilogue, strict=True) if o is not None and stage.name == QUANTIZE)
    return f"sum_{run[0]}_{c}_zero" if len({reader.key(zero, plan.rows[r]) for r in run}) == 1 else ""


def store(reader: Reader, run: list[int], c: int, chunk: Chunk) -> list[str]:
    """Return C statements that store the finished int8 results of a run of rows (`runs`) in one vector `chunk`."""
    width, name = chunk.width, f"words_{run[0]}_{c}"
    zero = zero_of(reader, run, c) or f"(real{width}){{0}}"
    texts = [finished(reader.plan, f"sum_{r}_{c}") for r in run]
    texts += [f"(vec{width}){{0}}"] * (-len(run) % WORD)
    packed = [f"words_of_{width}({', '.join(texts[i : i + WORD])}, {zero})" for i in range(0, len(texts), WORD)]
    return [
        f"const vec{width} {name}[] = {{{', '.join(packed)}}};",
        f"scatter_{COUNTS[_count(run)]}words_{width}({_place(reader, reader.plan.output, run, chunk)}, {name});",
    ]


def _count(run: list[int]) -> int:
    """Return the number of words of a run."""
    return -(-len(run) // WORD)


def _place(reader: Reader, operand: Operand, run: list[int], chunk: Chunk) -> str:
    """Return the C texts of three arguments: address of a run's words, distance between channels, number of bytes."""
    address = add(operand.name, reader.index(operand, reader.plan.rows[run[0]], chunk))
    return f"{address}, {operand.lane_stride}, {len(run)}"
