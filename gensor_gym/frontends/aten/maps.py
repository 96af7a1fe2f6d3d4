"""Elementwise operations of ATen."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import TABLE, Rule
from gensor_gym.frontends.covered import covers as _covers


def _maps(name: str, expression: Callable[..., Any]) -> None:
    TABLE[f"aten.{name}"] = lambda b, *given: b.map(expression(*given), name.partition(".")[0].strip("_"))


def _scaled_sum(sign: str) -> Rule:
    def rule(b: Builder, x: str | float, y: str | float, alpha: float = 1) -> str:
        return b.call(sign, x, y if alpha == 1 else of("multiply", y, alpha))

    return rule


for _name in ("add", "sub"):
    for _kind in ("Tensor", "Scalar"):
        TABLE[f"aten.{_name}.{_kind}"] = _scaled_sum("subtract" if _name == "sub" else "add")
for _name, _function in {"mul": "multiply", "div": "divide"}.items():
    for _kind in ("Tensor", "Scalar"):
        TABLE[f"aten.{_name}.{_kind}"] = lambda b, x, y, function=_function: b.call(function, x, y)
for _name, _function in {"neg": "negative", "abs": "absolute"}.items():
    _maps(f"{_name}.default", lambda x, function=_function: of(function, x))
for _name in ("atan", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "tanh", "erf", "sin", "cos", "round"):
    _maps(f"{_name}.default", lambda x, function=_name: of(function, x))
for _name in ("maximum", "minimum"):
    _maps(f"{_name}.default", lambda x, y, function=_name: of(function, x, y))


def _between(x: Any, least: float | None = None, most: float | None = None) -> Any:
    made = x if least is None else of("maximum", x, least)
    return made if most is None else of("minimum", made, most)


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":  # Hendrycks and Gimpel, arXiv 1606.08415
        cube = of("multiply", 0.044715, of("multiply", x, of("multiply", x, x)))
        inner = of("tanh", of("multiply", math.sqrt(2 / math.pi), of("add", x, cube)))
    else:
        inner = of("erf", of("multiply", x, math.sqrt(0.5)))
    return of("multiply", of("multiply", 0.5, x), of("add", 1.0, inner))


def sigmoid(x: Any) -> Any:
    """Return the expression of the logistic function 1 / (1 + exp(-x))."""
    return of("divide", 1.0, of("add", 1.0, of("exp", of("negative", x))))


def _hardsigmoid(x: Any) -> Any:
    return of("multiply", _between(of("add", x, 3.0), 0.0, 6.0), 1.0 / 6.0)


def floor(x: Any) -> Any:
    """Return the expression of the largest integer that is not above x."""
    nearest = of("round", x)
    return of("subtract", nearest, of("less", x, nearest))


def _ceil(x: Any) -> Any:
    nearest = of("round", x)
    return of("add", nearest, of("less", nearest, x))


def cut(x: Any) -> Any:
    """Return the expression of x truncated to an integer, towards 0."""
    return of("where", of("less", x, 0.0), _ceil(x), floor(x))


_MOST_FACTORS = 64
"""Largest integer exponent whose power is computed as a product. Each factor rounds once."""


@_covers("pow.Tensor_Scalar")
def power(b: Builder, x: str, exponent: float) -> str:
    """Raise x to a constant power: by products for a small integer exponent, by a square root, or by exp and log.

    For x below 0 the power is NaN unless the exponent is an integer.
    """
    if exponent in (0.5, -0.5):
        return b.call("sqrt" if exponent > 0 else "rsqrt", x)
    kind = b.reads.get(x, "float32")
    whole = kind != "float32" and isinstance(exponent, int)
    if not math.isfinite(exponent) or (whole and not 0 <= exponent <= _MOST_FACTORS):
        raise ValueError(f"the power {exponent} of {kind}: expected a finite one, of whole numbers 0 to {_MOST_FACTORS}")
    if exponent != int(exponent):
        return b.map(of("exp", of("multiply", exponent, of("log", x))), "pow")
    count = abs(int(exponent))
    if count == 0:
        return b.map(of("where", of("less", x, x), x, 1.0), "pow")  # 1 for every x, also NaN
    made = _product(b, x, count) if count <= _MOST_FACTORS else _far_power(b, x, count)
    return made if exponent > 0 else b.call("divide", 1.0, made)


def _product(b: Builder, x: str, count: int) -> str:
    """Raise x to the integer power `count` >= 1, by repeated squaring."""
    made, square = None if count % 2 == 0 else x, x
    while count := count // 2:
        square = b.call("multiply", square, square)
        if count % 2:
            made = square if made is None else b.call("multiply", made, square)
    assert made is not None
    return made


def _far_power(b: Builder, x: str, count: int) -> str:
    """Raise x to a large integer power, as exp(count log |x|). An odd power is x times the next lower power, for the sign."""
    size = of("exp", of("multiply", count - count % 2, of("log", of("absolute", x))))
    return b.map(of("multiply", x, size) if count % 2 else size, "pow")


@_covers("pow.Scalar")
def _exponential(b: Builder, base: float, x: str) -> str:
    """Raise a constant number above 0, or for integers any integer, to the power x."""
    if b.is_whole:
        return _whole_powers(b, b.constant("base", np.asarray(int(base))), x)
    if base == 1:
        return b.map(of("where", of("less", x, x), x, 1.0), "pow")
    if not 0 < base < math.inf:
        raise ValueError(f"powers of {base}: expected of a number above 0")
    return b.map(of("exp", of("multiply", math.log(base), x)), "pow")


def _elu(x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    low = of("multiply", alpha * scale, of("expm1", of("multiply", input_scale, of("minimum", x, 0.0))))
    return of("where", of("less", 0.0, x), of("multiply", scale, x), low)


def _leaky_relu(x: Any, slope: float = 0.01) -> Any:
    return of("where", of("less", 0.0, x), x, of("multiply", slope, x))


def _by_size(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Extend a function of expressions, which is accurate only for x >= 0, to an odd function: f(-x) = -f(x)."""
    return lambda x: of("where", of("less", x, 0.0), of("negative", function(of("absolute", x))), function(of("absolute", x)))


def _asinh(x: Any) -> Any:
    """Return the expression of asinh for x >= 0: log1p(x + x^2 / (1 + sqrt(x^2 + 1))), or log(2 x) for large x."""
    square = of("multiply", x, x)
    near = of("log1p", of("add", x, of("divide", square, of("add", 1.0, of("sqrt", of("add", square, 1.0))))))
    return of("where", of("less", x, 1e8), near, of("add", of("log", x), math.log(2.0)))


def _acosh(x: Any) -> Any:
    """Return the expression of acosh: log1p(t + sqrt(t) sqrt(t + 2)) with t = x - 1, or log(2 x) for large x."""
    above = of("subtract", x, 1.0)
    root = of("multiply", of("sqrt", above), of("sqrt", of("add", above, 2.0)))
    return of("where", of("less", x, 1e8), of("log1p", of("add", above, root)), of("add", of("log", x), math.log(2.0)))


def _atanh(x: Any) -> Any:
    return of("multiply", 0.5, of("log1p", of("divide", of("multiply", 2.0, x), of("subtract", 1.0, x))))


def _sinh(x: Any) -> Any:
    """Return the expression of sinh for x >= 0: (u + u / (u + 1)) / 2 with u = expm1(x).

    For large x it is half of exp(x), as two factors that overflow no earlier than the result.
    """
    grown, half = of("expm1", x), of("exp", of("multiply", 0.5, x))
    near = of("multiply", 0.5, of("add", grown, of("divide", grown, of("add", grown, 1.0))))
    return of("where", of("less", x, 20.0), near, of("multiply", of("multiply", 0.5, half), half))


def _negative(x: Any) -> Any:
    """Return the expression that is 1 if x has a minus sign, including -0, else 0."""
    return of("maximum", of("less", x, 0.0), of("less", of("divide", 1.0, x), 0.0))


def _copysign(x: Any, y: Any) -> Any:
    size = of("absolute", x)
    return of("where", _negative(y), of("negative", size), size)


def _hypot(x: Any, y: Any) -> Any:
    """Return the expression of the length of (x, y): most * sqrt(1 + (least / most)^2) of the magnitudes.

    The sum of squares could overflow float32.
    """
    sizes = of("absolute", x), of("absolute", y)
    most = of("maximum", *sizes)
    share = of("divide", of("minimum", *sizes), most)
    length = of("multiply", most, of("sqrt", of("add", 1.0, of("multiply", share, share))))
    far = of("maximum", *(of("at_most", math.inf, size) for size in sizes))
    return of("where", far, math.inf, of("where", of("at_most", most, 0.0), 0.0, length))


def _asin(x: Any) -> Any:
    return of("atan", of("divide", x, of("sqrt", of("multiply", of("subtract", 1.0, x), of("add", 1.0, x)))))


def _acos(x: Any) -> Any:
    return of("multiply", 2.0, of("atan", of("sqrt", of("divide", of("subtract", 1.0, x), of("add", 1.0, x)))))


def _atan2(y: Any, x: Any) -> Any:
    """Return the expression of the angle of (x, y): the arctangent of |y / x|, mirrored to its quadrant.

    The angle of two infinities is that of a diagonal.
    """
    far = of("multiply", of("at_most", math.inf, of("absolute", x)), of("at_most", math.inf, of("absolute", y)))
    none = of("multiply", of("at_most", of("absolute", x), 0.0), of("at_most", of("absolute", y), 0.0))
    share = of("where", far, 1.0, of("where", none, 0.0, of("absolute", of("divide", y, x))))
    angle = of("atan", share)
    turned = of("where", _negative(x), of("subtract", math.pi, angle), angle)
    return of("where", _negative(y), of("negative", turned), turned)


@_covers("pow.Tensor_Tensor")
def _powers(b: Builder, x: str | float, y: str | float) -> str:
    """Raise x to the power y, by log |x|. For x below 0 it is NaN unless y is an integer, and negative if y is odd."""
    x, y = (one if isinstance(one, str) else b.constant("number", np.asarray(one)) for one in (x, y))
    if b.is_whole:
        return _whole_powers(b, x, y)
    size = b.map(of("exp", of("multiply", y, of("log", of("absolute", x)))), "size")
    half = of("multiply", 0.5, y)
    odd = of("maximum", of("less", of("round", half), half), of("less", half, of("round", half)))
    whole = of("multiply", of("at_most", y, of("round", y)), of("at_most", of("round", y), y))
    there = of("maximum", whole, of("at_most", x, -math.inf))
    signed = of("where", of("multiply", odd, whole), of("negative", size), size)
    below = of("where", there, signed, of("log", x))  # NaN
    zero = of("multiply", of("at_most", 0.0, x), _negative(x))
    made = b.map(of("where", of("less", x, 0.0), below, of("where", zero, signed, size)), "pow")
    far = of("at_most", math.inf, of("absolute", y))
    unit = of("multiply", of("at_most", of("absolute", x), 1.0), of("at_most", 1.0, of("where", far, of("absolute", x), x)))
    return b.map(of("where", of("maximum", unit, of("at_most", of("absolute", y), 0.0)), 1.0, made), "pow")


def _whole_powers(b: Builder, x: str, y: str) -> str:
    """Raise integers x to integer powers y by repeated squaring. For y below 0, only powers of 1 and -1 are not 0."""
    made, square = b.map(of("where", of("less", y, 0.0), 0.0, 1.0), "pow"), x
    for bit in range(63):
        made = b.map(of("where", of("bits_and", y, 1 << bit), of("multiply", made, square), made), "pow")
        square = b.call("multiply", square, square)
    unit = of("multiply", of("at_most", x, 1.0), of("at_most", -1.0, x))
    sign = of("where", of("bits_and", y, 1.0), x, of("multiply", x, x))
    return b.map(of("where", of("multiply", of("less", y, 0.0), unit), sign, made), "pow")


_maps("signbit.default", _negative)
_maps("copysign.Tensor", _copysign)
_maps("copysign.Scalar", lambda x, y: _copysign(x, y))
_maps("hypot.default", _hypot)
_maps("asin.default", _asin)
_maps("acos.default", _acos)
_maps("atan2.default", _atan2)
_maps("exp2.default", lambda x: of("exp", of("multiply", math.log(2.0), x)))
_maps("log2.default", lambda x: of("multiply", 1.0 / math.log(2.0), of("log", x)))
_maps("log10.default", lambda x: of("multiply", 1.0 / math.log(10.0), of("log", x)))


def _round(x: Any, decimals: int = 0) -> Any:
    """Return the expression of x rounded to `decimals` digits after the point, or before the point if `decimals` is negative."""
    if decimals == 0:
        return of("round", x)
    by = 10.0 ** abs(decimals)
    if decimals > 0:
        return of("divide", of("round", of("multiply", x, by)), by)
    return of("multiply", of("round", of("divide", x, by)), by)


TABLE["aten.round.decimals"] = lambda b, x, *, decimals=0: b.map(_round(x, decimals), "round")
_maps("asinh.default", _by_size(_asinh))
_maps("acosh.default", _acosh)
_maps("atanh.default", _by_size(_atanh))
_maps("sinh.default", _by_size(_sinh))
_maps("floor.default", floor)
_maps("ceil.default", _ceil)
_maps("trunc.default", cut)
_maps("frac.default", lambda x: of("subtract", x, cut(x)))
_maps("tan.default", lambda x: of("divide", of("sin", x), of("cos", x)))
_maps("elu.default", _elu)
_maps("leaky_relu.default", _leaky_relu)
_maps("_prelu_kernel.default", _leaky_relu)
_maps("sign.default", lambda x: of("subtract", of("less", 0.0, x), of("less", x, 0.0)))
_maps("clamp.Tensor", _between)
_maps("relu.default", lambda x: of("maximum", x, 0.0))
_maps("relu6.default", lambda x: _between(x, 0.0, 6.0))
_maps("hardtanh.default", lambda x, least=-1.0, most=1.0: _between(x, least, most))
_maps("clamp.default", _between)
_maps("clamp_min.default", _between)
_maps("gelu.default", _gelu)
_maps("sigmoid.default", sigmoid)
_maps("silu.default", lambda x: of("divide", x, of("add", 1.0, of("exp", of("negative", x)))))
_maps("hardsigmoid.default", _hardsigmoid)
_maps("hardswish.default", lambda x: of("multiply", x, _hardsigmoid(x)))
_maps("reciprocal.default", lambda x: of("divide", 1.0, x))
TABLE["aten.gelu.default"] = lambda b, x, approximate="none": b.map(_gelu(x, approximate), "gelu")


@_covers("clone.default", "contiguous.default", "alias.default", "detach.default", "lift_fresh_copy.default")
def _same(b: Builder, x: str, *_: Any) -> str:
    return x


@_covers("dropout.default", "dropout_.default", "native_dropout.default", "feature_dropout.default", "alpha_dropout.default")
def _dropout(b: Builder, x: str, share: float, training: bool) -> str:
    if training and share:
        raise ValueError("numbers dropped at random: expected evaluation mode of every part")
    return x
