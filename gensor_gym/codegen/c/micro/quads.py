"""Stores of int8 results whose lanes are channels: four neighbours in a row of pixels are stored as one 32-bit word per channel.

Stored and read byte by byte, a 1x1 convolution to 256 channels with a residual takes 2.2 times as long (ResNet-50, Zen 4).
"""

from __future__ import annotations

from gensor_gym.codegen.c.elements.quantized import finished
from gensor_gym.codegen.c.layout.operands import Operand
from gensor_gym.codegen.c.operand import Reader
from gensor_gym.codegen.c.plan import Chunk
from gensor_gym.codegen.c.text import add

WORD = 4
"""Bytes of a word."""


def quads(reader: Reader) -> list[list[int]]:
    """Group those rows of the register tile that are adjacent pixels in memory, up to four.

    Return the row numbers of each group; the result is empty if results are not stored in words of four bytes.
    """
    plan = reader.plan
    output, spatial = plan.output, plan.op.spatial
    if output.dtype != "int8" or plan.vector_is_reduced or output.lane_stride == 1 or plan.splits > 1 or plan.shift is not None:
        return []
    axis = next((a for a in spatial if a != plan.vector and output.strides[a] == 1 and plan.tiles[0][a] > 1), None)
    if axis is None or any(reader.sticks_out(a) for a in spatial) or any(chunk.width == 1 for chunk in plan.chunks):
        return []
    found: dict[tuple[int, ...], list[int]] = {}
    for number, row in enumerate(plan.rows):
        found.setdefault((*row[:axis], row[axis] // WORD, *row[axis + 1 :]), []).append(number)
    return list(found.values())


def words(reader: Reader, group: list[int], c: int, chunk: Chunk) -> tuple[list[str], dict[str, str]]:
    """Write loads of the int8 residuals of a group of rows, as words.

    Return (C statements, residual's name -> its variable). `group` are the row numbers; `c` is the index of the vector `chunk`.
    """
    lines, names = [], {}
    for operand in reader.plan.stages:
        if operand is not None and operand.dtype == "int8":
            names[operand.name] = name = f"{operand.name}_{group[0]}_{c}"
            place = _place(reader, operand, group, chunk)
            lines.append(f"const vec{chunk.width} {name} = gather_words_{chunk.width}({place});")
    return lines, names


def element(name: str, chunk: Chunk, number: int) -> str:
    """Return the C text of one row's elements, taken from the variable `name` with the words of a group of rows.

    `number` is the row's position in the group.
    """
    return f"byte_of_{chunk.width}({name}, {number})"


def store(reader: Reader, groups: list[list[int]]) -> list[str]:
    """Return C statements that store the finished int8 results as 32-bit words.

    `groups` are the row numbers of each word (`quads`).
    """
    lines = []
    for group in groups:
        for c, chunk in enumerate(reader.plan.chunks):
            parts = [f"byte_at_{chunk.width}({finished(reader.plan, f'sum_{r}_{c}')}, {i})" for i, r in enumerate(group)]
            place = _place(reader, reader.plan.output, group, chunk)
            lines.append(f"scatter_words_{chunk.width}({place}, {' | '.join(parts)});")
    return lines


def _place(reader: Reader, operand: Operand, group: list[int], chunk: Chunk) -> str:
    """Return the C texts of three arguments: address of a group's words, distance between channels, number of bytes."""
    address = add(operand.name, reader.index(operand, reader.plan.rows[group[0]], chunk))
    return f"{address}, {operand.lane_stride}, {len(group)}"
