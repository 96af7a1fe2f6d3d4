"""Variants of training operators, only in the train part. With many shapes, a policy cannot memorise them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gensor_gym import operators
from gensor_gym.operators.shapes.splits import VERSIONS
from gensor_gym.operators.text import FACTORIES
from gensor_gym.operators.types import Operator

_FIXED = ("r", "s", "stride", "padding", "dilation", "groups", "dtype", "name")
"""Arguments that a variant keeps, because they define the kind of operator and not its size."""
_GRAIN = (1, 2, 4, 7, 8, 12, 14, 16, 28, 32, 64, 100, 128)
"""Usual sizes: a varied extent is often made a multiple of one of them, as published shapes usually are."""


def with_variants(given: list[Operator], count: int, rng: np.random.Generator) -> list[Operator]:
    """Return the given operators and `count` variants, whose extents are half to twice as long on every axis.

    Every variant belongs to the train part of every split whose train part contains all given operators. ValueError for given
    operators outside the train part of split v1, which is always among these splits.
    """
    wrong = [str(op) for op in given if count and operators.part_of(op) != "train"]
    if wrong:
        raise ValueError(f"variants are of operators of the train part, not of {wrong[:3]}")
    kept = [version for version in VERSIONS if all(operators.part_of(op, version) == "train" for op in given)]
    found = dict.fromkeys(given)
    for _ in range(50 * count):
        if len(found) >= len(given) + count:
            break
        op = variant(given[int(rng.integers(len(given)))], rng)
        if op is not None and all(operators.part_of(op, version) == "train" for version in kept):
            found[op] = None
    return list(found)


def variant(op: Operator, rng: np.random.Generator) -> Operator | None:
    """Return the operator with other extents; None if they are invalid (a window that does not fit)."""
    changed: dict[str, Any] = {name: _other(name, value, rng) for name, value in op.arguments}
    values = [changed.pop("name")] if "name" in changed else []
    shape = changed.pop("shape", ())
    try:
        return FACTORIES[op.name](*values, *shape, **changed).with_epilogue(*(stage.name for stage in op.epilogue))
    except ValueError:
        return None


def _other(name: str, value: object, rng: np.random.Generator) -> object:
    """Draw another value for an argument of an operator. Fixed arguments and 1 are kept."""
    if isinstance(value, tuple) and name == "shape":
        return tuple(_length(extent, rng) for extent in value)
    if name in _FIXED or isinstance(value, bool) or not isinstance(value, int) or value == 1:
        return value
    return _length(value, rng)


def _length(extent: int, rng: np.random.Generator) -> int:
    """Draw an extent half to twice as long, in three of four cases a multiple of a usual size (`_GRAIN`)."""
    longer = extent * math.exp2(rng.uniform(-1.0, 1.0))
    fitting = [grain for grain in _GRAIN if grain <= longer]
    grain = fitting[int(rng.integers(len(fitting)))] if fitting and rng.random() < 0.75 else 1
    return max(1, round(longer / grain) * grain)
