"""A few long rows of a CPU's nest, cut in parts that are rows themselves: threads share them, and steps interleave them.

A part's reductions are combined with those of the row's other parts before anything reads them, so that every pass is a kernel of
its own (the split in two stages). A step of several parts reads several streams at once, which is faster than one from beyond the
cores' own caches, for any number of threads.
"""

from __future__ import annotations

import dataclasses

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.gir.nest import Access, Cell, RowNest, row_nest
from gensor_gym.hardware.types import Hardware

LEAST_COLUMNS, MOST_PARTS = 8192, 64
"""Columns of a part, so that its sums' ends are a small share of it; parts of a row."""
LEAST_PASSES = 32768
"""Least columns of a row with several passes, each of which becomes a launch.

Two cores of an Intel Xeon: softmax of one row, 16384 columns 4.6 us in parts and 4.4 whole, 32768 columns 7.1 and 8.3.
"""
_LINE = 16
"""Elements of a line of the cache: parts of whole lines are preferred."""
_FEW = 4
"""Equal parts that are fewer than the most that there may be by more than this factor leave cores without work."""


def nest_on(graph: Dataflow, hardware: Hardware) -> RowNest:
    """The canonical loops of a graph as a machine runs them; ValueError as of `row_nest`."""
    nest = row_nest(graph)
    return in_parts(nest, hardware.units) if hardware.kind == "cpu" else nest


def in_parts(nest: RowNest, units: int) -> RowNest:
    """The nest with long rows in parts where there are fewer rows than cores, or one row; else the same.

    Rows that are contiguous in some tensor stay whole, because their loads are transposed in registers.
    """
    count, columns = parts_of(nest.columns)
    left = nest.columns - (count - 1) * columns
    if nest.passes > 1 and nest.columns < LEAST_PASSES:
        return nest
    if nest.parts > 1 or count == 1 or nest.rows >= max(units, 2) or any(one.is_turned for one in _accesses(nest)):
        return nest

    def cut(access: Access) -> Access:
        chosen = access.chosen
        if chosen is not None:
            chosen = dataclasses.replace(chosen, ids=cut(chosen.ids))
        return dataclasses.replace(access, rows=(*access.rows, columns * access.column), chosen=chosen)

    def placed(cell: Cell) -> Cell:
        return dataclasses.replace(cell, made=cut(cell.made)) if isinstance(cell.made, Access) else cell

    return dataclasses.replace(
        nest, row_extents=(*nest.row_extents, count), columns=columns, cells=tuple(map(placed, nest.cells)),
        stores=tuple((name, cut(to)) for name, to in nest.stores), parts=count, last=0 if left == columns else left,
    )  # fmt: skip


def parts_of(columns: int) -> tuple[int, int]:
    """(number of parts of a row of `columns` columns, columns of each but the last).

    The most equal parts, of whole cache lines if possible; if there are few of these, as of a prime, the last is shorter.
    """
    most = min(MOST_PARTS, columns // LEAST_COLUMNS)
    if most < 2:
        return 1, columns
    fitting = (count for count in range(2, most + 1) if columns % count == 0)
    count = max(fitting, key=lambda count: (columns // count % _LINE == 0, count), default=1)
    if _FEW * count >= most and count > 1:
        return count, columns // count
    width = -(-columns // (most * _LINE)) * _LINE
    return -(-columns // width), width


def _accesses(nest: RowNest) -> list[Access]:
    return [cell.made for cell in nest.cells if isinstance(cell.made, Access)] + [to for _, to in nest.stores]
