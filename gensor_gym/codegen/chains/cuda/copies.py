"""CUDA text that copies tiles of a chain's operands to shared memory, with zeros outside the tensors.

Copies of 4, 8 or 16 bytes are asynchronous (cp.async). Elements that are not adjacent are copied one by one.
"""

from __future__ import annotations

from gensor_gym.chains.gpu.tiles import ITEM
from gensor_gym.codegen.chains.cuda.plan import Plan, Tile
from gensor_gym.codegen.cuda.text import Loop, Writer, total


def write_copy(out: Writer, plan: Plan, tile: Tile, buffer: str, row: str, column: str) -> None:
    """Write the copy of one tile of a matrix to shared memory.

    `row` and `column` are its position in the matrix; `buffer` is the offset in bytes of the buffer from `tile.offset`.
    """
    rows, columns = tile.shape[0], tile.shape[1] // tile.width
    copies = rows * columns
    with out.block(""):
        out.line(f"unsigned char *const to = {total([(1, 'shared_memory'), (1, buffer)], tile.offset)};")
        with out.nest([Loop("start", str(copies), plan.threads)]):
            out.line("const int copy = start + thread;")
            with out.guarded([f"copy < {copies}"] if copies % plan.threads else []):
                _write_element(out, tile, columns, row, column)


def _write_element(out: Writer, tile: Tile, columns: int, row: str, column: str) -> None:
    width, steps = tile.width, tile.steps
    out.line(f"const int r = copy / {columns}, c = {total([(width, f'copy % {columns}')])};")
    inside = [
        f"{total([(1, start), (1, name)])} < {limit}"
        for start, name, limit, size in ((row, "r", tile.limits[0], tile.shape[0]), (column, "c", tile.limits[1], tile.shape[1]))
        if limit % size
    ]
    places = f"static_cast<long long>({total([(1, row), (1, 'r')])})", f"static_cast<long long>({total([(1, column), (1, 'c')])})"
    place = total(zip(steps, places, strict=True))
    source = f"{tile.name} + {place}" if place != "0" else tile.name
    to = f"to + {ITEM} * ({total([(tile.pitch, 'r'), (1, 'c')])})"
    condition = " && ".join(inside)
    if width > 1:
        out.line(f"copy_async<{ITEM * width}>({', '.join([to, source, *([condition] if condition else [])])});")
        return
    value = f"{condition} ? ({source})[0] : 0" if condition else f"({source})[0]"
    out.line(f"*reinterpret_cast<unsigned short *>({to}) = {value};")


def write_rights(out: Writer, plan: Plan, key_tile: str, buffer: str, both: bool) -> None:
    """Write the copies of one tile of keys to shared memory.

    They are tile `key_tile` of the first product's right operand and, if `both`, of the second product's.
    """
    first = f"{key_tile} * KEYS" if " " not in key_tile else f"({key_tile}) * KEYS"
    for tile, by_columns in zip(plan.rights[: 1 + both], (True, False), strict=False):
        along_rows = tile.deep != by_columns  # keys are columns of the first operand, rows of the second
        row, column = (first, "0") if along_rows else ("0", first)
        write_copy(out, plan, tile, buffer, row, column)
