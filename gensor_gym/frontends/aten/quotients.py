"""Rules for ATen's division with rounding to integers and for remainders, exact for quotients of any size."""

from __future__ import annotations

from typing import Any

from gensor_gym.dataflow.expressions import Expression
from gensor_gym.frontends.aten.maps import cut
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import covers as _covers


def _is_whole(b: Builder, *given: Any) -> bool:
    return all(b.reads[one] != "float32" if isinstance(one, str) else isinstance(one, int) for one in given)


def _left(b: Builder, x: Any, by: Any) -> str:
    return b.call("fmod", x, by)


def _left_of_divisor(b: Builder, x: Any, by: Any) -> str:
    """Return the expression of the remainder of x divided by `by`, with the sign of `by`."""
    left = _left(b, x, by)
    return b.map(of("where", _is_unlike(left, by), of("add", left, by), left), "left")


def _is_unlike(left: str, by: Any) -> Expression:
    """Return the expression that is 1 if the remainder `left` and the divisor `by` have different signs, else 0."""
    return of("where", of("less", by, 0.0), of("less", 0.0, left), of("less", left, 0.0))


@_covers("remainder.Scalar", "remainder.Tensor", "remainder.Scalar_Tensor")
def _remainder(b: Builder, x: Any, by: Any) -> str:
    return _left_of_divisor(b, x, by)


@_covers("fmod.Scalar", "fmod.Tensor")
def _fmod(b: Builder, x: Any, by: Any) -> str:
    return _left(b, x, by)


@_covers("floor_divide.default", "floor_divide.Scalar", "div.Tensor_mode", "div.Scalar_mode")
def _divide(b: Builder, x: Any, by: Any, rounding_mode: str | None = "floor") -> str:
    if rounding_mode is None:
        return b.call("divide", x, by)
    divisor = of("multiply", 1.0, by)  # so that kernels divide, which rounds once, instead of multiplying by an inverse
    if rounding_mode == "trunc" and not _is_whole(b, x, by):
        return b.map(cut(of("divide", x, divisor)), "quotient")
    left = _left(b, x, by)
    quotient = of("divide", of("subtract", x, left), divisor)
    if rounding_mode == "floor":
        quotient = of("subtract", quotient, _is_unlike(left, by))
    if _is_whole(b, x, by):
        return b.map(quotient, "quotient")
    whole = of("where", of("less", 0.0, of("absolute", by)), of("round", quotient), of("divide", x, by))
    return b.map(whole, "quotient")
