"""Online softmax: sum exp(x - max(x)) in the pass that finds the maximum (Milakov and Gimelshein, arXiv 1805.02867).

A running maximum replaces the final maximum. When it grows, the sum so far is rescaled. That saves a pass along the columns and
costs one more exponential in every step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from gensor_gym.dataflow.expressions import Call, Operand
from gensor_gym.gir.nest import Cell, Online, RowNest

LEAST_COLUMNS, LEAST_SIDE = 128, 8
"""Fewest columns of a nest, and fewest columns of a step, with an online sum. Its vectors have more than one element.

An online sum then has at most as many roundings as a sum in any order, which verification allows. With n columns, V parallel
elements and T vectors, a lane's sum has at most n / (V T) + T steps, each with an exponential (4 roundings), a product and sums,
and log2(V) + 5 roundings when lanes are combined. A sum in any order has n - 1.
"""


def online_sums(nest: RowNest, name: str) -> tuple[str, ...]:
    """Names of the sums of a cell that can be computed online; empty unless the cell is exp(x - max(x))."""
    if nest.columns < LEAST_COLUMNS or shifted_power(nest, name) is None:
        return ()
    return tuple(one.name for one in nest.cells if one.made == "sum" and one.sources == (name,))


def shifted_power(nest: RowNest, name: str) -> tuple[str, str] | None:
    """Names of x and max(x) if a cell is exp(x - max(x)), else None."""
    cell = nest.cell[name]
    match cell.made:
        case Call("exp", (Call("subtract", (Operand(of), Operand(top))),)) if cell.wide:
            maximum = nest.cell[top]
            return (of, top) if (maximum.made, maximum.sources, maximum.stage) == ("max", (of,), cell.stage) else None
    return None


def taken_online(nest: RowNest, names: Mapping[str, bool]) -> RowNest:
    """The nest with the sums of selected cells computed online, so that cells that read them depend on one reduction fewer.

    `names` tells for each cell whether it is selected.
    """
    sums = {total: nest.cell[name] for name, taken in names.items() if taken for total in online_sums(nest, name)}
    if not sums:
        return nest
    cells: dict[str, Cell] = {}
    for cell in nest.cells:
        if cell.name in sums:
            of, top = sums[cell.name].sources
            cell = dataclasses.replace(cell, made=Online(top), sources=(of,))
        cells[cell.name] = dataclasses.replace(cell, stage=_stage(cell, cells))
    return dataclasses.replace(nest, cells=tuple(cells.values()))


def _stage(cell: Cell, before: Mapping[str, Cell]) -> int:
    return max((before[source].stage for source in cell.sources), default=0) + (1 if cell.is_reduction else 0)
