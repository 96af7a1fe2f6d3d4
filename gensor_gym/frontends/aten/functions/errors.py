"""Rules for the complementary and the inverse error function, and for the hyperbolic cosine."""

from __future__ import annotations

import math

from gensor_gym.frontends.aten.functions.polynomials import polynomial
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import covers as _covers


@_covers("erfc.default", "special_erfc.default")
def _erfc(b: Builder, x: str) -> str:
    return b.call("erfc", x)


_CENTRE = (
    1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06, -3.5233877e-06, 3.43273939e-07,
    2.81022636e-08,
)  # fmt: skip
_TAIL = (
    2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844, 0.00134934322, 0.000100950558,
    -0.000200214257,
)  # fmt: skip


@_covers("erfinv.default", "special_erfinv.default")
def _erfinv(b: Builder, x: str) -> str:
    """Compute the inverse error function as x P(w), with a polynomial P of w = -log(1 - x^2), in float32.

    M. Giles, Approximating the erfinv function, GPU Computing Gems 2, 2011.
    """
    w = b.map(of("negative", of("log", of("multiply", of("subtract", 1.0, x), of("add", 1.0, x)))), "w")
    centre = polynomial(of("subtract", w, 2.5), _CENTRE)
    tail = polynomial(of("subtract", of("sqrt", w), 3.0), _TAIL)
    made = of("multiply", x, of("where", of("less", w, 5.0), centre, tail))
    edge = of("at_most", math.inf, w)  # x is 1 or -1
    return b.map(of("where", edge, of("multiply", x, math.inf), made), "erfinv")


@_covers("cosh.default")
def _cosh(b: Builder, x: str) -> str:
    """Compute the hyperbolic cosine as (0.5 h) h + 0.5 / (h h), h = exp(|x| / 2), which overflows no earlier than the result."""
    half = b.call("exp", of("multiply", 0.5, of("absolute", x)))
    large, small = of("multiply", of("multiply", 0.5, half), half), of("divide", 0.5, of("multiply", half, half))
    return b.map(of("add", large, small), "cosh")
