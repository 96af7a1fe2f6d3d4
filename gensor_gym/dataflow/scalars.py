"""Scalar functions that a map is written with: what each computes, and how far a computed value may be from the exact one.

A rule of error bounds |f(x^) - f(x)| for every x^ within the argument's error of x; the function's own rounding comes on top.
Where a rule cannot bound (a logarithm of what may be below zero, a quotient by what may be zero) it says infinite.
The rules are ours, by interval arithmetic on monotone pieces and the standard model of floating point (Higham, Accuracy and
Stability of Numerical Algorithms, section 2.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Scalar:
    """One function of one to three numbers."""

    arity: int
    value: Callable[..., Array]
    """Of float64 arrays."""
    error: Callable[..., Array]
    """(values.., errors..) -> bound of the error that the arguments' errors make, without the function's own rounding."""
    roundings: float
    """How many units of roundoff of its result a kernel may be off by itself; 0 where the result is exact."""
    operations: int
    """Floating-point operations that it counts as, by which the model and the roofline count work."""


def _between(value: Callable[[Array], Array]) -> Callable[[Array, Array], Array]:
    """The error of a monotone function of one number: the farther of both ends of the interval; of what may be no number none."""

    def error(x: Array, e: Array) -> Array:
        here = value(x)
        return np.where(np.isinf(e), np.inf, np.maximum(np.abs(value(x + e) - here), np.abs(value(x - e) - here)))

    return error


def _product(a: Array, b: Array, ea: Array, eb: Array) -> Array:
    return np.abs(a) * eb + np.abs(b) * ea + ea * eb


def _quotient(a: Array, b: Array, ea: Array, eb: Array) -> Array:
    room = np.abs(b) - eb
    return np.where(room > 0, (ea + np.abs(a / b) * eb) / np.where(room > 0, room, 1.0), np.inf)


def _root(value: Callable[[Array], Array], lowest: float) -> Callable[[Array, Array], Array]:
    """As `_between`, infinite where the interval leaves the domain: numbers above `lowest`, or from it where that is a value."""
    between = _between(value)

    def error(x: Array, e: Array) -> Array:
        inside = (x - e > lowest) | ((e == 0) & (x >= lowest))
        return np.where(inside, between(np.where(inside, x, 1.0), np.where(inside, e, 0.0)), np.inf)

    return error


def _wave(x: Array, e: Array) -> Array:
    """The error of a sine or cosine, neither of which rises faster than its argument or goes beyond 1; of no number none."""
    return np.minimum(e, 2.0)


def _where(condition: Array, a: Array, b: Array, unsure: Array, ea: Array, eb: Array) -> Array:
    """A condition is a comparison, whose error is 1 where its sides are too near to tell: then either branch may come."""
    sure = np.where(condition != 0, ea, eb)
    return np.where(unsure == 0, sure, np.maximum(ea, eb) + np.abs(a - b))


def _chosen(condition: Array, a: Array, b: Array) -> Array:
    return np.where(condition != 0, a, b)


def _compared(a: Array, b: Array, ea: Array, eb: Array) -> Array:
    return ((np.abs(a - b) <= ea + eb) & (ea + eb > 0)).astype(np.float64)


def _larger(a: Array, b: Array, ea: Array, eb: Array) -> Array:
    """Of a maximum or a minimum: no more than the error of the one that is taken, or of the other where it may be taken."""
    return np.maximum(ea, eb)


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _near_erf(x: Array, e: Array) -> Array:
    """By the mean value theorem: the error times the steepest slope within it, 2 / sqrt(pi) exp(-x^2) at the nearest to zero."""
    least = np.maximum(np.abs(x) - e, 0.0)
    return np.where(np.isinf(e), np.inf, 2.0 / math.sqrt(math.pi) * np.exp(-least * least) * e)


SCALARS = {
    "add": Scalar(2, np.add, lambda a, b, ea, eb: ea + eb, 1, 1),
    "subtract": Scalar(2, np.subtract, lambda a, b, ea, eb: ea + eb, 1, 1),
    "multiply": Scalar(2, np.multiply, _product, 1, 1),
    "divide": Scalar(2, np.divide, _quotient, 3, 4),
    "negative": Scalar(1, np.negative, lambda x, e: e, 0, 1),
    "absolute": Scalar(1, np.abs, lambda x, e: e, 0, 1),
    "maximum": Scalar(2, np.maximum, _larger, 0, 1),
    "minimum": Scalar(2, np.minimum, _larger, 0, 1),
    "exp": Scalar(1, np.exp, _between(np.exp), 4, 10),
    "log": Scalar(1, np.log, _root(np.log, 0.0), 4, 12),
    "expm1": Scalar(1, np.expm1, _between(np.expm1), 4, 12),
    "log1p": Scalar(1, np.log1p, _root(np.log1p, -1.0), 4, 16),
    "sqrt": Scalar(1, np.sqrt, _root(np.sqrt, 0.0), 1, 4),
    "rsqrt": Scalar(1, lambda x: 1.0 / np.sqrt(x), _root(lambda x: 1.0 / np.sqrt(x), 0.0), 4, 4),
    "tanh": Scalar(1, np.tanh, _between(np.tanh), 8, 16),
    "erf": Scalar(1, _erf, _near_erf, 8, 20),
    "sin": Scalar(1, np.sin, _wave, 4, 12),
    "cos": Scalar(1, np.cos, _wave, 4, 12),
    "atan": Scalar(1, np.arctan, _between(np.arctan), 4, 16),
    "round": Scalar(1, np.rint, _between(np.rint), 0, 1),
    "less": Scalar(2, lambda a, b: (a < b).astype(np.float64), _compared, 0, 1),
    "at_most": Scalar(2, lambda a, b: (a <= b).astype(np.float64), _compared, 0, 1),
    "where": Scalar(3, _chosen, _where, 0, 1),
}
"""Name -> function. Roundings are what generated code is held to; a quotient may be a product with a refined reciprocal.
`round` goes to the nearest whole number, of two the even one."""
NEAREST = ("add", "subtract", "multiply")
"""Functions that generated code computes with one operation of IEEE 754, alone or fused: the nearest number to the true one."""
