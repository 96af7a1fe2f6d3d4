"""Rules for the logarithm of the gamma function and its derivatives.

Terms are summed until the argument is so large that an asymptotic series is accurate. Formulas: NIST Digital Library of
Mathematical Functions, 5.5, 5.11 and 5.15, and 25.11 for Hurwitz's zeta function. If torch computes a function in float32,
torch's formula is used.
"""

from __future__ import annotations

import math

import numpy as np

from gensor_gym.frontends.aten.functions.polynomials import polynomial
from gensor_gym.frontends.aten.maps import cut
from gensor_gym.frontends.builder import Builder, of
from gensor_gym.frontends.covered import covers as _covers

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66)
"""Bernoulli numbers B_2, B_4, .. B_10."""
_STEPS = 10
"""Number of terms that are summed before the asymptotic series."""
MOST_ORDER = 6
"""Highest order of a derivative of digamma. For higher orders the few terms of the series are not accurate."""


@_covers("lgamma.default", "special_gammaln.default")
def _lgamma(b: Builder, x: str) -> str:
    return b.call("lgamma", x)


def _whole_below(b: Builder, x: str) -> str:
    """Add nodes that compute 1 where x is a pole of the gamma function (0 or a negative integer), else 0."""
    there = of("multiply", of("at_most", x, cut(x)), of("at_most", cut(x), x))
    return b.map(of("multiply", there, of("at_most", x, 0.0)), "pole")


def _cotangent(b: Builder, x: str) -> str:
    """Compute the cotangent of pi x, from the distance to the nearest integer: exactly 0 halfway between two integers."""
    left = b.map(of("subtract", x, of("round", x)), "left")
    size = of("absolute", left)
    near, far = of("multiply", math.pi, size), of("multiply", math.pi, of("subtract", 0.5, size))
    large, small = of("divide", of("cos", near), of("sin", near)), of("divide", of("sin", far), of("cos", far))
    made = b.map(of("where", of("less", size, 0.25), large, small), "cotangent")
    return b.map(of("where", of("less", left, 0.0), of("negative", made), made), "cotangent")


def _mirrored(b: Builder, x: str) -> str:
    return b.map(of("where", of("less", x, 0.0), of("subtract", 1.0, x), x), "mirrored")


@_covers("digamma.default", "special_psi.default", "special_digamma.default")
def digamma(b: Builder, x: str) -> str:
    """Add nodes that compute digamma, the logarithmic derivative of the gamma function.

    For x below 0 it is digamma(1 - x) minus pi / tan(pi x).
    """
    y = _mirrored(b, x)
    terms = of("divide", -1.0, y)
    for step in range(1, _STEPS):
        terms = of("subtract", terms, of("divide", 1.0, of("add", y, float(step))))
    sums, far = b.map(terms, "sums"), b.call("add", y, float(_STEPS))
    square = b.call("divide", 1.0, of("multiply", far, far))
    series = polynomial(square, [one / (2 * k) for k, one in enumerate(_BERNOULLI, 1)])
    tail = of("subtract", of("subtract", of("log", far), of("divide", 0.5, far)), of("multiply", square, series))
    made = b.map(of("add", sums, tail), "digamma")
    below = of("subtract", made, of("multiply", math.pi, _cotangent(b, x)))
    made = b.map(of("where", of("less", x, 0.0), below, made), "digamma")
    none = of("where", of("less", of("absolute", x), 1.0), of("divide", -1.0, x), math.inf)
    none = of("where", of("less", x, 0.0), of("subtract", none, math.inf), none)
    return b.map(of("where", _whole_below(b, x), none, made), "digamma")


def _trigamma(b: Builder, x: str) -> str:
    """Compute trigamma, the derivative of digamma, by torch's formula, with torch's errors at negative integers."""
    below = of("less", x, 0.5)
    wave = b.call("sin", of("multiply", float(np.float32(math.pi)), x))
    y = b.map(of("where", below, of("subtract", 1.0, x), x), "mirrored")
    terms = of("divide", 1.0, of("multiply", y, y))
    for step in range(1, 6):
        at = of("add", y, float(step))
        terms = of("add", terms, of("divide", 1.0, of("multiply", at, at)))
    sums, far = b.map(terms, "sums"), b.call("add", y, 6.0)
    square = b.call("divide", 1.0, of("multiply", far, far))
    series = of("add", of("add", 1.0, of("divide", 0.5, far)), of("multiply", square, polynomial(square, _BERNOULLI[:3])))
    made = b.map(of("add", sums, of("divide", series, far)), "trigamma")
    turned = of("subtract", of("divide", math.pi**2, of("multiply", wave, wave)), made)
    return b.map(of("where", below, turned, made), "trigamma")


@_covers("polygamma.default", "special_polygamma.default")
def _polygamma(b: Builder, order: int, x: str) -> str:
    """Compute derivative n = `order` of digamma: (-1)^(n + 1) n! zeta(n + 1, x).

    For x below 0 it follows from the value at 1 - x and the derivative of pi / tan(pi x) (the reflection formula).
    """
    if order < 2:
        return _trigamma(b, x) if order else digamma(b, x)
    if order > MOST_ORDER:
        raise ValueError(f"derivative {order} of digamma: expected at most {MOST_ORDER}")
    sign, factorial = (1.0 if order % 2 else -1.0), float(math.factorial(order))
    made = b.call("multiply", sign * factorial, _zeta(b, order + 1, _mirrored(b, x)))
    angle = b.map(polynomial(_cotangent(b, x), _cotangent_derivative(order)), "angle")
    below = of("subtract", of("multiply", (-1.0) ** order, made), angle)
    made = b.map(of("where", of("less", x, 0.0), below, made), "polygamma")
    made = b.map(of("where", _whole_below(b, x), sign * math.inf, made), "polygamma")
    return b.map(of("where", of("at_most", math.inf, x), of("subtract", x, x), made), "polygamma")  # NaN, as in torch


def _cotangent_derivative(order: int) -> list[float]:
    """Return the derivative number `order` of pi / tan(pi x), as coefficients of a polynomial in c = cot(pi x).

    It follows from dc/dx = -pi (1 + c^2). The constant term comes first.
    """
    made = np.polynomial.Polynomial([0.0, 1.0])
    for _ in range(order):
        made = -np.polynomial.Polynomial([1.0, 0.0, 1.0]) * made.deriv()
    return [math.pi ** (order + 1) * float(one) for one in made.coef]


def _zeta(b: Builder, s: int, x: str) -> str:
    """Compute Hurwitz's zeta function: the sum of 1 / (x + k)^s over k = 0, 1, .., for x >= 0.

    `_STEPS` terms are summed; Euler and Maclaurin's formula gives the rest.
    """
    sums: str | None = None
    for step in range(_STEPS):
        term = _inverse_power(b, b.call("add", x, float(step)) if step else x, s)
        sums = term if sums is None else b.call("add", sums, term)
    far = b.call("add", x, float(_STEPS))
    last = _inverse_power(b, far, s)
    square = b.call("divide", 1.0, of("multiply", far, far))
    rising = [one * math.prod(range(s, s + 2 * k - 1)) / math.factorial(2 * k) for k, one in enumerate(_BERNOULLI, 1)]
    tail = of("add", of("add", of("divide", far, s - 1.0), 0.5), of("divide", polynomial(square, rising), far))
    assert sums is not None
    return b.call("add", sums, of("multiply", last, tail))


def _inverse_power(b: Builder, x: str, s: int) -> str:
    inverse = b.call("divide", 1.0, x)
    made: str | None = None
    for bit in bin(s)[2:]:
        made = b.call("multiply", made, made) if made else None
        if bit == "1":
            made = b.call("multiply", made, inverse) if made else inverse
    assert made is not None
    return made
