"""C text of a kernel that joins the rows of a nest to the rows of a table that ids select.

Each thread owns a range of the table's rows. It passes over all ids and computes the rows whose ids are in its range, in order.
So threads never write to the same row, and the result does not depend on their number.
"""

from __future__ import annotations

from gensor_gym.codegen.c.text import Lines
from gensor_gym.codegen.gir.elements import element_of
from gensor_gym.codegen.gir.moves import loaded, taken
from gensor_gym.gir.igraph import Slice
from gensor_gym.gir.nest import Access, RowNest

OWNED = ", const long first, const long last"
"""Further arguments of the function of a row: the range of rows of the table that its thread owns."""


def scatter_loop(nest: RowNest, access: Access, table: str, name: str) -> str:
    """Return the C function `name` of a thread's work; `table` is the address of the table, and `NAME_rows1` computes a row."""
    lines, element = Lines(), element_of(nest)
    assert access.chosen is not None and access.chosen.scatter is not None
    count, step, start = access.chosen.count, access.chosen.step, element.number(access.chosen.scatter.start)
    with lines.block(f"static void {name}(void *context, long index, int thread)"):
        lines.add("const struct call *const call = context;")
        lines.add(f"const long first = index * {count} / call->owners, last = (index + 1) * {count} / call->owners;")
        lines.add(f"{element.c} *const table = {table};")
        lines.add(f"for (long at = first * {step}; at < last * {step}; at++) table[at] = {start};")
        lines.add(f"for (long row = 0; row < {nest.rows}; row++) {name}_rows1(call, call->scratch, row, first, last);")
        lines.add("(void)thread;")
    return str(lines)


def joined(nest: RowNest, part: Slice, row: str, here: str, shape: tuple[int, int | None], name: str) -> str:
    """Return the C text of the stored value `name`. A scatter combines it with the element in memory.

    `row` is the address at which the slice's row begins, `here` the column, `shape` is (lanes, lanes that are stored or None).
    """
    scatter = None if part.access is None or part.access.chosen is None else part.access.chosen.scatter
    if scatter is None:
        return name
    width, lanes = shape
    there = loaded(nest, part, row, here, width, lanes) if here else taken(nest, part, row)
    return element_of(nest).joined(scatter.body, there, name, width)
