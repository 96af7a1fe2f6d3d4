"""Rules for bitwise operations and shifts of integers in two's complement."""

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
_BITS = 64


def _is_truth(b: Builder, *given: Given) -> bool:
    """Return whether all arguments are bools or the numbers 0 and 1. ValueError unless all are integers or bools."""
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
    kinds = "Tensor", "Tensor_Scalar", "Scalar_Tensor"
    return (*(f"bitwise_{side}_shift.{kind}" for kind in kinds), *(f"__{side[0]}shift__.{kind}" for kind in ("Scalar", "Tensor")))


@_covers(*_shift("right"))
def _right_shift(b: Builder, x: Given, by: Any) -> str:
    """Compute floor(x / 2^by): 0 or -1 if `by` is negative or too large, as in torch."""
    _is_truth(b, x, by)
    sign = of("negative", of("less", x, 0.0))
    if not isinstance(by, str):
        return b.map(floor(of("divide", x, 2.0**by)) if 0 <= by < _BITS - 1 else sign, "shifted")
    share, far = _power(b, by, _BITS - 2)
    return b.map(of("where", far, sign, of("divide", x, share)), "shifted")


@_covers(*_shift("left"))
def _left_shift(b: Builder, x: Given, by: Any) -> str:
    """Compute x * 2^by with wrap-around: 0 if `by` is negative or too large, as in torch."""
    _is_truth(b, x, by)
    if not isinstance(by, str):
        return b.call("multiply", x, 1 << by if 0 <= by < _BITS else 0.0)
    factor, far = _power(b, by, _BITS - 1)
    return b.map(of("where", far, 0.0, of("multiply", x, factor)), "shifted")


def _power(b: Builder, by: str, most: int) -> tuple[str, Expression]:
    """Add nodes that compute 2^by in int64.

    Return (the result's name, expression of 1 where `by` is outside 0 to `most`, else 0). Where `by` is outside, the power is 1.
    """
    powers = b.constant("powers", np.left_shift(1, np.arange(most + 1)))
    far = of("maximum", of("less", by, 0.0), of("less", float(most), by))
    return b.add(Gather(powers, b.map(of("where", far, 0.0, by), "places")), "power"), far
