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
"""Fewest columns of a row, and fewest columns of a step, with which a sum may be computed online.

The vectors of such a step have more than one element.

An online sum then has at most as many roundings as a sum in any order, which verification allows. With n columns, V parallel
elements and T vectors, a lane's sum has at most n / (V T) + T steps, each with an exponential (4 roundings), a product and sums,
and log2(V) + 5 roundings when lanes are combined. A sum in any order has n - 1.
"""


def online_sums(nest: RowNest, name: str) -> tuple[str, ...]:
    """Return the names of the sums over the value `name` that can be computed online.

    The result is empty unless the value is exp(x - max(x)) and rows are long enough.
    """
    if nest.columns < LEAST_COLUMNS or shifted_power(nest, name) is None:
        return ()
    return tuple(one.name for one in nest.cells if one.made == "sum" and one.sources == (name,))


def shifted_power(nest: RowNest, name: str) -> tuple[str, str] | None:
    """Return (name of x, name of max(x)) if the value `name` is exp(x - max(x)) with the maximum of the same row, else None."""
    cell = nest.cell[name]
    match cell.made:
        case Call("exp", (Call("subtract", (Operand(of), Operand(top))),)) if cell.wide:
            maximum = nest.cell[top]
            return (of, top) if (maximum.made, maximum.sources, maximum.stage) == ("max", (of,), cell.stage) else None
    return None


def taken_online(nest: RowNest, names: Mapping[str, bool]) -> RowNest:
    """Return the nest with some sums computed online, which saves later values one pass over the columns.

    `names` maps names of values exp(x - max(x)) to whether their sums are computed online.
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
