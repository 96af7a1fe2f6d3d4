"""Quotients of ATen that are cut to whole numbers, and what is left after them."""

from __future__ import annotations

from typing import Any

from gensor_gym.frontends.aten.maps import floor
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import covers as _covers


def _is_whole(b: Builder, *given: Any) -> bool:
    """Whether all are whole numbers."""
    return all(b.reads[one] != "float32" if isinstance(one, str) else isinstance(one, int) for one in given)


def _of_whole(b: Builder, x: Any, by: Any) -> tuple[Any, Any]:
    """Whole numbers by one above 0: (quotients, remainders), both exact; the rounded quotient may be off by one."""
    if not isinstance(x, str) or not isinstance(by, int) or by < 1:
        raise ValueError(f"a whole quotient of whole numbers by {by}: expected one by a number of at least 1")
    near = b.call("round", of("subtract", of("divide", of("add", x, 0.5), by), 0.5))
    left = b.map(of("subtract", x, of("multiply", near, by)), "left")
    off = b.map(of("subtract", of("subtract", 1.0, of("less", left, by)), of("less", left, 0.0)), "off")
    return of("add", near, off), of("subtract", left, of("multiply", by, off))


def _is_below(x: Any, by: Any) -> Any:
    """Whether it is nearer to 0."""
    return of("less", of("absolute", x), of("absolute", by))


def _left(b: Builder, x: Any, by: Any) -> str:
    """What is left of x, with the sign of `by`: near by a rounding of x where the quotient is below 2**24.

    The rounded quotient may be off by one. What is below `by` stays as it is, also below what is infinite.
    """
    rest = of("subtract", x, of("multiply", by, floor(of("divide", x, by))))
    left = b.map(of("where", _is_below(x, by), x, rest), "left")
    left = b.map(of("where", _is_below(left, by), left, of("subtract", left, by)), "left")
    unlike = of("where", of("less", by, 0.0), of("less", 0.0, left), of("less", left, 0.0))
    return b.map(of("where", unlike, of("add", left, by), left), "left")


def _left_of_sign(b: Builder, x: Any, by: Any) -> str:
    """What is left of x, with the sign of x."""
    left = _left(b, b.call("absolute", x), of("absolute", by))
    return b.map(of("where", of("less", x, 0.0), of("negative", left), left), "left")


@_covers("remainder.Scalar", "remainder.Tensor", "remainder.Scalar_Tensor")
def _remainder(b: Builder, x: Any, by: Any) -> str:
    return b.map(_of_whole(b, x, by)[1], "remainder") if _is_whole(b, x, by) else _left(b, x, by)


@_covers("fmod.Scalar", "fmod.Tensor")
def _fmod(b: Builder, x: Any, by: Any) -> str:
    if _is_whole(b, x, by):
        raise ValueError("a remainder of whole numbers with the sign of the first: expected torch.remainder, or float32")
    return _left_of_sign(b, x, by)


@_covers("floor_divide.default", "floor_divide.Scalar", "div.Tensor_mode", "div.Scalar_mode")
def _divide(b: Builder, x: Any, by: Any, rounding_mode: str | None = "floor") -> str:
    if rounding_mode is None:
        return b.call("divide", x, by)
    if not _is_whole(b, x, by):
        left = (_left if rounding_mode == "floor" else _left_of_sign)(b, x, by)
        whole = of("round", of("divide", of("subtract", x, left), by))
        return b.map(of("where", of("less", 0.0, of("absolute", by)), whole, of("divide", x, by)), "quotient")
    if rounding_mode == "floor":
        return b.map(_of_whole(b, x, by)[0], "quotient")
    raise ValueError(f"a quotient of whole numbers that is cut ({rounding_mode}): expected floor")
