"""Find chains whose weights are 0 after a diagonal, such as causal attention, so that kernels skip these columns.

After the diagonal, every element of the row nest is computed from the known number of the mask (`dataflow.nodes.Triangle`) and
from unknown ones. The columns can be skipped if each reduction meets its identity there, and the weight is 0. Unknown ones count
as finite: like torch's kernels, ours hide infinities and NaN behind the mask, and divide by no 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from gensor_gym.dataflow.expressions import Constant, Expression, Operand
from gensor_gym.dataflow.nodes import Triangle
from gensor_gym.dataflow.scalars import SCALARS
from gensor_gym.gir.nest import Access, RowNest

_IDENTITY = {"sum": 0.0, "max": -math.inf}
_LOWEST = -(2.0**120)
"""Masks with numbers from here down, such as the lowest of float32 and bfloat16, hide scores as minus infinity does.

A score of less than 2^95 does not change such a number, whose exponential is 0 if the row has any score that is seen.
"""


def triangles(nest: RowNest, rows: int) -> dict[str, Triangle]:
    """Return the values of a row nest that are loaded from a triangle along the rows and columns of each matrix, by name.

    A matrix has `rows` rows, which are the last axis of rows.
    """
    found = dict[str, Triangle]()
    for cell in nest.cells:
        known = nest.graph.values[cell.made.tensor].triangle if isinstance(cell.made, Access) else None
        if known is not None and isinstance(at := cell.made, Access) and nest.row_extents[-1:] == (rows,):
            if at.column == 1 and at.offset == 0 and at.rows[-1] == nest.columns and not any(at.rows[:-1]) and not at.chosen:
                found[cell.name] = known
    return found


def diagonal_of(nest: RowNest, weights: str, rows: int) -> int | None:
    """Return the diagonal D of a row nest: weights of row r of a matrix are 0 after column r + D. None if there is none.

    `weights` is the value that the nest stores, `rows` the number of rows of a matrix.
    """
    masks = triangles(nest, rows)
    for diagonal in sorted({one.diagonal for one in masks.values()}):
        known: dict[str, float | None] = {}
        for cell in nest.cells:
            mask = masks.get(cell.name)
            if isinstance(cell.made, Access):
                known[cell.name] = _lowered(mask.above) if mask is not None and mask.diagonal <= diagonal else None
            elif cell.is_reduction:
                known[cell.name] = None
                if nest.cell[cell.sources[0]].wide and known[cell.sources[0]] != _IDENTITY.get(str(cell.made)):
                    break
            else:
                known[cell.name] = _lowered(_value(cell.made, known))  # type: ignore[arg-type]
        else:
            if known[weights] == 0.0 and diagonal < nest.columns - 1:
                return diagonal
    return None


def _lowered(value: float | None) -> float | None:
    return -math.inf if value is not None and value <= _LOWEST else value


def _value(part: Expression, known: Mapping[str, float | None]) -> float | None:
    """Return the value of an expression; None if it depends on unknown numbers, which are None in `known`."""
    match part:
        case Constant(value):
            return float(value)
        case Operand(name):
            return known[name]
    given = [_value(one, known) for one in part.arguments]
    match part.function, given:
        case "where", (float(condition), one, other):
            return one if condition else other
        case "where", (None, float(one), float(other)) if one == other:
            return one
        case ("add" | "subtract"), (float(one), None) if math.isinf(one):
            return one
        case ("add" | "subtract"), (None, float(other)) if math.isinf(other):
            return other if part.function == "add" else -other
        case "multiply", ((0.0, None) | (None, 0.0)):
            return 0.0
        case "divide", (0.0, None):
            return 0.0
        case "minimum", _ if -math.inf in given:
            return -math.inf
    if None in given:
        return None
    with np.errstate(all="ignore"):
        return float(SCALARS[part.function].value(*(np.float64(one) for one in given if one is not None)))
