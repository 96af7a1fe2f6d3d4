"""C text of products in tile registers: the sums of a register tile are up to four tiles, which are stored in memory at the end.

A step multiplies up to 64 bytes of each row of the scalar operand with as many groups of rows of the other. The rest of the
reduction of a matrix product, which fills no step, is computed in vectors.
"""

from __future__ import annotations

from gensor_gym.codegen.c.amx.stores import in_fours, is_signed
from gensor_gym.codegen.c.amx.tiling import GROUP_BYTES, LANES, ROW_BYTES, Tiling
from gensor_gym.codegen.c.micro.ahead import ask_ahead
from gensor_gym.codegen.c.operand import SCALAR, Reader, bounds
from gensor_gym.codegen.c.plan import LoopPlan
from gensor_gym.codegen.c.text import Lines, add
from gensor_gym.operators.types import ITEM_BYTES

SCALARS, COLUMNS = (4, 5), (6, 7)
"""Numbers of the registers that hold rows of the scalar operand in turn, and columns of the other. Sums are in the first four."""
_ALIGNED = f"__attribute__((aligned({ROW_BYTES})))"


def shapes(plan: LoopPlan) -> str:
    """Return the C definition of the shapes of tile registers; empty if the plan uses none."""
    found = plan.tiling
    if found is None:
        return ""
    rows = {_sums(found, p, c): size for p, (_, size) in enumerate(found.parts) for c in range(len(plan.chunks))}
    rows |= dict.fromkeys(SCALARS, found.parts[0][1]) | dict.fromkeys(COLUMNS, found.row_bytes // GROUP_BYTES)
    if len(found.parts) > 1:
        rows[SCALARS[1]] = found.parts[1][1]
    in_bytes = dict.fromkeys(rows, ROW_BYTES) | dict.fromkeys(SCALARS, found.row_bytes)
    widths, counts = (", ".join(f"[{number}] = {size}" for number, size in sorted(sizes.items()))
                      for sizes in (in_bytes, rows))  # fmt: skip
    return f"static const struct tile_shapes shapes_of_tiles = {{1, .row_bytes = {{{widths}}}, .rows = {{{counts}}}}};\n"


def _sums(found: Tiling, part: int, chunk: int) -> int:
    """Return the number of the tile register with the sums of a part of the rows and a vector."""
    return chunk * len(found.parts) + part


def products(lines: Lines, reader: Reader, found: Tiling) -> None:
    """Write the products of whole steps of the reduction in tiles, and add them to the accumulators.

    They stay in memory if results are stored in fours. The index along the reduction is declared if products are left from it on.
    """
    plan = reader.plan
    width, rows = LANES * len(plan.chunks), found.rows
    numbers = [(p, c) for p in range(len(found.parts)) for c in range(len(plan.chunks))]
    lines.add(f"{plan.accumulator} sums_of_tiles[{rows}][{width}] {_ALIGNED};")
    if reader.edge:
        elements = ROW_BYTES // ITEM_BYTES[plan.op.dtype]
        lines.add(f"{plan.reads[0].c_type} rows_of_tiles[{rows}][{elements}] {_ALIGNED};")
    lines.add(*(f"tile_zero({_sums(found, *key)});" for key in numbers))
    _loops(lines, reader, found, list(plan.op.reduce))
    for p, c in numbers:
        place = f"&sums_of_tiles[{found.parts[p][0]}][{LANES * c}]"
        lines.add(f"tile_store({_sums(found, p, c)}, {place}, {4 * width});")
    for r in range(0 if in_fours(reader) else len(plan.rows)):
        for c, chunk in enumerate(plan.chunks):
            found_sum = f"load_{LANES}(&sums_of_tiles[{found.place(r)}][{chunk.offset}])"
            lines.add(f"sum_{r}_{c} += {found_sum}{f' - start_0_{c}' if is_signed(plan) else ''};")


def _loops(lines: Lines, reader: Reader, found: Tiling, axes: list[int]) -> None:
    plan = reader.plan
    if not axes:
        _step(lines, reader, found)
        return
    axis, *inner = axes
    name, (begin, end) = plan.axes[axis], bounds(plan, axis)
    if plan.op.extents[axis] == 1 or axis == found.taps:
        lines.add(f"const long {name} = 0;")
        _loops(lines, reader, found, inner)
        return
    head = f"for (long {name} = {begin}; {name} < {end}; {name}{f' += {found.step}' if axis == plan.group else '++'})"
    if axis == plan.group and not plan.groups_channels:
        lines.add(f"long {name} = {begin};")
        head = f"for (; {name} + {found.step} <= {end}; {name} += {found.step})"
    with lines.block(head):
        ask_ahead(lines, reader, axis)
        _loops(lines, reader, found, inner)


def _step(lines: Lines, reader: Reader, found: Tiling) -> None:
    plan = reader.plan
    scalar, item = plan.reads[0], ITEM_BYTES[plan.op.dtype]
    places = {found.place(r): add(scalar.name, reader.index(scalar, row, SCALAR)) for r, row in enumerate(plan.rows)}
    pitch = ROW_BYTES if found.axis < 0 else item * scalar.strides[found.axis]
    if reader.edge:  # the last row may repeat, so that rows have no equal distances
        lines.add(*(f"memcpy(rows_of_tiles[{r}], {place}, {found.row_bytes});" for r, place in places.items()))
        places, pitch = {r: f"rows_of_tiles[{r}]" for r in range(found.rows)}, ROW_BYTES
    starts = [places.get(start) or f"{places[0]} + {start * pitch // item}" for start, _ in found.parts]
    loads = [f"tile_load({SCALARS[p % 2]}, {start}, {pitch});" for p, start in enumerate(starts)]
    chunks, parts = range(len(plan.chunks)), range(len(found.parts))
    if len(chunks) <= len(COLUMNS):
        lines.add(*(_column(reader, found, c) for c in chunks))
        for p in parts:
            lines.add(loads[p], *(_dot(plan, found, p, c) for c in chunks))
        return
    lines.add(*loads)
    for c in chunks:
        lines.add(_column(reader, found, c), *(_dot(plan, found, p, c) for p in parts))


def _column(reader: Reader, found: Tiling, c: int) -> str:
    plan, lanes = reader.plan, reader.plan.reads[1]
    width = plan.largest[plan.vector]
    pitch = lanes.strides[found.taps] * ITEM_BYTES[plan.op.dtype] if found.taps >= 0 else GROUP_BYTES * width
    return f"tile_load({COLUMNS[c % 2]}, {add(lanes.name, reader.index(lanes, plan.rows[0], plan.chunks[c]))}, {pitch});"


def _dot(plan: LoopPlan, found: Tiling, p: int, c: int) -> str:
    """Return the C statement that multiplies part `p` of the rows with vector `c` of the columns."""
    name = "tdpbf16ps" if not plan.groups_bytes else "tdpbssd" if is_signed(plan) else "tdpbusd"
    return f'tile_dot("{name}", {_sums(found, p, c)}, {SCALARS[p % 2]}, {COLUMNS[c % 2]}, {int(is_signed(plan))});'
