"""Scalar functions of maps: values, and bounds on a computed value's error.

An error rule bounds |f(x^) - f(x)| for every computed argument x^ whose distance from x is at most the argument's error. The
function's own rounding is added. Without a bound (a logarithm near zero, a quotient whose divisor may be zero) the rule returns
infinity. The rules are ours: interval arithmetic on monotone pieces, and the standard model of floating point (Higham, Accuracy
and Stability of Numerical Algorithms, section 2.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Scalar:
    """A function of one to three numbers that maps may use, such as `exp`, with its error bound and its cost."""

    arity: int
    value: Callable[..., Array]
    """The function itself, on float64 arrays."""
    error: Callable[..., Array]
    """Function of (values.., errors..) that bounds the result's error due to the arguments' errors, without the function's own
    rounding."""
    roundings: float
    """Bound on the error that a kernel's own rounding adds, in unit roundoffs of the result; 0 if the result is exact."""
    operations: int
    """Number of floating-point operations that the model and the roofline count."""


def _between(value: Callable[[Array], Array]) -> Callable[[Array, Array], Array]:
    """Return the error rule of a monotone function of one number: the larger error at the two ends of its interval."""

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
    """Return an error rule like `_between`, but infinite if part of the interval is not above `lowest`.

    `lowest` itself is allowed for an argument without error.
    """
    between = _between(value)

    def error(x: Array, e: Array) -> Array:
        inside = (x - e > lowest) | ((e == 0) & (x >= lowest))
        return np.where(inside, between(np.where(inside, x, 1.0), np.where(inside, e, 0.0)), np.inf)

    return error


def _wave(x: Array, e: Array) -> Array:
    """Return the error of a sine or cosine, whose slope and values are at most 1."""
    return np.minimum(e, 2.0)


def _where(condition: Array, a: Array, b: Array, unsure: Array, ea: Array, eb: Array) -> Array:
    """Return the error of a choice. If `unsure` is 1, the comparison is too close to decide, and either branch is possible."""
    sure = np.where(condition != 0, ea, eb)
    return np.where(unsure == 0, sure, np.maximum(ea, eb) + np.abs(a - b))


def _chosen(condition: Array, a: Array, b: Array) -> Array:
    return np.where(condition != 0, a, b)


def _compared(a: Array, b: Array, ea: Array, eb: Array) -> Array:
    return ((np.abs(a - b) <= ea + eb) & (ea + eb > 0)).astype(np.float64)


def _larger(a: Array, b: Array, ea: Array, eb: Array) -> Array:
    """Return the error of a maximum or minimum: the larger of both errors, because either argument may be chosen."""
    return np.maximum(ea, eb)


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _near_erf(x: Array, e: Array) -> Array:
    """Return the error of erf by the mean value theorem.

    The error is the argument's error times the steepest slope in the interval, 2 / sqrt(pi) exp(-x^2) at the point nearest to
    zero.
    """
    least = np.maximum(np.abs(x) - e, 0.0)
    return np.where(np.isinf(e), np.inf, 2.0 / math.sqrt(math.pi) * np.exp(-least * least) * e)


_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _near_erfc(x: Array, e: Array) -> Array:
    """Return the error of erfc: that of erf, but at most erfc at the interval's lower end, which is small far above 0."""
    return np.minimum(_near_erf(x, e), np.where(np.isinf(e), np.inf, _erfc(x - e)))


def _log_gamma_of(x: float) -> float:
    """Return the logarithm of |Gamma(x)|; infinite at 0, at negative integers, at infinities, and beyond float64's range."""
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):
        return math.inf


_log_gamma = np.vectorize(_log_gamma_of, otypes=[np.float64])
_LEAST_GAMMA = 1.4616321449683623
"""Argument at which the gamma function is least above 0: NIST Digital Library of Mathematical Functions, 5.4(iii)."""


def _near_log_gamma(x: Array, e: Array) -> Array:
    """Return the error of the logarithm of gamma: the largest difference from its values at ends and minimum of the interval.

    The function is convex above 0. Below 0 it has poles, so inexact arguments have no bound; near its zeros there, libraries have
    absolute errors of a few unit roundoffs of 1.
    """
    inside = x - e > 0
    low, high = np.where(inside, x - e, 1.0), np.where(inside, x + e, 1.0)
    here, least = _log_gamma(np.where(inside, x, 1.0)), _log_gamma(np.clip(_LEAST_GAMMA, low, high))
    far = np.maximum(np.maximum(_log_gamma(low), _log_gamma(high)) - here, here - least)
    return np.where(inside, far, np.where(e == 0, 64 * 2.0**-24, np.inf))


def _near_remainder(a: Array, b: Array, ea: Array, eb: Array) -> Array:
    """Return the error of a remainder: infinite for an inexact divisor, else the error of a.

    If the remainder's interval reaches 0 or the divisor, any remainder is possible, and the error is 2 |b|.
    """
    size = np.abs(np.fmod(a, b))
    stays = (size > ea) & (size + ea < np.abs(b))
    return np.where(eb > 0, np.inf, np.where(ea == 0, 0.0, np.where(stays, ea, 2.0 * np.abs(b))))


def _bits_and(a: Array, b: Array) -> Array:
    return (np.nan_to_num(a).astype(np.int64) & np.nan_to_num(b).astype(np.int64)).astype(np.float64)


def _unsure(a: Array, b: Array, ea: Array, eb: Array) -> Array:
    """Return the error of a function without a rule: 0 for exact arguments, else infinite."""
    return np.where((ea == 0) & (eb == 0), 0.0, np.inf)


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
    "erfc": Scalar(1, _erfc, _near_erfc, 8, 24),
    "lgamma": Scalar(1, _log_gamma, _near_log_gamma, 8, 40),
    "fmod": Scalar(2, np.fmod, _near_remainder, 0, 20),
    "bits_and": Scalar(2, _bits_and, _unsure, 0, 4),
}
"""Name -> function. Generated code must keep to the numbers of roundings. A quotient may be a product with a refined reciprocal.
`round` rounds to the nearest integer, ties to even. `fmod` is the remainder, with the sign of the first argument. `bits_and`
takes 32-bit integers in two's complement."""
NEAREST = ("add", "subtract", "multiply")
"""Functions that generated code computes as one IEEE 754 operation, possibly fused: the result is the nearest number."""
