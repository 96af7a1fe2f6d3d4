"""Bitwise operations and shifts of integers, which are in two's complement."""

from __future__ import annotations

from typing import Any

import numpy as np

from gensor_gym.dataflow.expressions import Expression
from gensor_gym.dataflow.nodes import Gather
from gensor_gym.frontends.aten.choices import neither, unequal
from gensor_gym.frontends.aten.maps import floor
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import covers as _covers

Given = str | float | Expression
_FAR = 25
"""A shift to the right by this many bits or more leaves 0 or -1 of every integer that float32 represents exactly."""


def _is_truth(b: Builder, *given: Given) -> bool:
    """Whether all arguments are bools, or 0 or 1; ValueError unless all are integers."""
    kinds = [b.reads[one] if isinstance(one, str) else "bool" if one in (0, 1) else type(one).__name__ for one in given]
    if not set(kinds) <= {"bool", "int", "int32", "int64"}:
        raise ValueError(f"bits of {', '.join(kinds)}: expected whole numbers")
    return all(kind == "bool" for kind in kinds)


@_covers("bitwise_not.default")
def _bitwise_not(b: Builder, x: str) -> str:
    return b.map(neither(x), "neither") if b.reads[x] == "bool" else b.call("subtract", -1.0, x)


@_covers("bitwise_and.Tensor", "__and__.Tensor", "bitwise_and.Scalar", "__and__.Scalar", "bitwise_and.Scalar_Tensor")
def _bitwise_and(b: Builder, x: Given, y: Given) -> str:
    return b.call("multiply" if _is_truth(b, x, y) else "bits_and", x, y)


@_covers("bitwise_or.Tensor", "__or__.Tensor", "bitwise_or.Scalar", "__or__.Scalar", "bitwise_or.Scalar_Tensor")
def _bitwise_or(b: Builder, x: Given, y: Given) -> str:
    if _is_truth(b, x, y):
        return b.call("maximum", x, y)
    return b.map(of("subtract", of("add", x, y), of("bits_and", x, y)), "bits")


@_covers("bitwise_xor.Tensor", "__xor__.Tensor", "bitwise_xor.Scalar", "__xor__.Scalar", "bitwise_xor.Scalar_Tensor")
def _bitwise_xor(b: Builder, x: Given, y: Given) -> str:
    if _is_truth(b, x, y):
        return b.map(unequal(x, y), "unlike")
    return b.map(of("subtract", of("add", x, y), of("multiply", 2.0, of("bits_and", x, y))), "bits")


def _shift(side: str) -> tuple[str, ...]:
    """Names of ATen's shifts to the "left" or "right"."""
    kinds = "Tensor", "Tensor_Scalar", "Scalar_Tensor"
    return (*(f"bitwise_{side}_shift.{kind}" for kind in kinds), *(f"__{side[0]}shift__.{kind}" for kind in ("Scalar", "Tensor")))


@_covers(*_shift("right"))
def _right_shift(b: Builder, x: Given, by: Any) -> str:
    """Floor of x / 2^by; 0 or -1 for a shift that is long or below 0, like torch's."""
    _is_truth(b, x, by)
    shares = 0.5 ** np.arange(_FAR + 1)
    if not isinstance(by, str):
        return b.map(floor(of("multiply", x, shares[by if 0 <= by < _FAR else _FAR])), "shifted")
    place = b.map(of("where", of("less", by, 0.0), float(_FAR), of("minimum", by, float(_FAR))), "places")
    share = b.add(Gather(b.constant("shares", shares), place), "share")
    return b.map(floor(of("multiply", x, share)), "shifted")


@_covers(*_shift("left"))
def _left_shift(b: Builder, x: Given, by: Any) -> str:
    """Left shift by constant numbers of bits, 0 to `_FAR` - 1."""
    _is_truth(b, x, by)
    known = b.known(by) if isinstance(by, str) else np.asarray(by)
    if known is None or known.min() < 0 or known.max() >= _FAR:
        raise ValueError(f"a shift to the left by {by}: expected 0 to {_FAR - 1} places, the same at every call")
    return b.call("multiply", x, b.constant("factor", 2.0**known) if known.ndim else float(2.0**known))
