"""Values with a bound on a correct kernel's error.

Errors are absolute, so that cancellation is exact: the difference of two large numbers keeps their errors. Numbers that are not
finite have no error: a kernel must give the same infinity, or a NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

UNDERFLOW = 2.0 * float(np.finfo(np.float32).tiny)
"""Results nearer to zero may come out as zero: generated code may flush them, of exponentials those below 2^-125."""
OVERFLOW = float(np.finfo(np.float32).max)
"""Results farther from zero may become infinite, and functions of them NaN: they have no bound."""
MOST_WHOLE = float(1 << 24)
"""Whole numbers up to this are float32 numbers."""


@dataclass(frozen=True)
class Bounded:
    """float64 values, and of each how far a right kernel's may be away; both of one shape."""

    value: np.ndarray
    error: np.ndarray


def exact(value: np.ndarray) -> Bounded:
    """Inputs, which have no error. One stored number represents the zeros of all elements."""
    return Bounded(value, np.broadcast_to(np.float64(0.0), np.shape(value)))


def rounded(found: Bounded, unit: float, roundings: float, nearest: bool = False) -> Bounded:
    """The same after an operation with `roundings` roundings; 0 leaves the error as it is.

    `nearest`: IEEE 754 requires the nearest number, so exact float32 results are not rounded.
    """
    if not roundings:
        return Bounded(found.value, _settled(found.value, found.error))
    with np.errstate(all="ignore"):
        own = roundings * unit * (np.abs(found.value) + found.error) + UNDERFLOW
        if nearest and not np.any(found.error):
            own = np.where(_held(found.value), 0.0, own)
        return Bounded(found.value, _settled(found.value, found.error + own))


def _held(value: np.ndarray) -> np.ndarray:
    """Whether a value is a float32 number that is not flushed to zero, bool."""
    return (np.float32(value) == value) & ((value == 0.0) | (np.abs(value) >= UNDERFLOW))


def _settled(value: np.ndarray, error: np.ndarray) -> np.ndarray:
    """No error for infinities and NaN; an infinite error if the bound is NaN or the value may leave float32."""
    with np.errstate(all="ignore"):
        lost = np.isnan(error) | (np.abs(value) + error > OVERFLOW)
    return np.where(np.isfinite(value), np.where(lost, np.inf, error), 0.0)


def gamma(count: int, unit: float) -> float:
    """Bound of n consecutive roundings: n u / (1 - n u), Higham's lemma 3.1; infinite if n u reaches 1."""
    return count * unit / (1.0 - count * unit) if count * unit < 1.0 else float("inf")


def summed(found: Bounded, axes: tuple[int, ...], unit: float) -> Bounded:
    """Sums along axes, kept with extent 1, in any order: n - 1 roundings of partial sums (Higham, section 4.2).

    Exact whole numbers whose magnitudes add up to at most 1 / `unit` are not rounded.
    """
    count = int(np.prod([np.shape(found.value)[axis] for axis in axes]))
    with np.errstate(all="ignore"):
        value = np.sum(found.value, axis=axes, keepdims=True)
        size = np.sum(np.abs(found.value) + found.error, axis=axes, keepdims=True)
        own = gamma(count - 1, unit) * size + count * UNDERFLOW
        if not np.any(found.error):
            whole = np.all(np.rint(found.value) == found.value, axis=axes, keepdims=True)
            own = np.where(whole & (size * unit <= 1.0), 0.0, own)
        error = np.sum(found.error, axis=axes, keepdims=True) + own
    return Bounded(value, _settled(value, error))


def largest(found: Bounded, axes: tuple[int, ...]) -> Bounded:
    """Maxima along axes, kept with extent 1, with the largest error of the elements that may be the maximum."""
    return enclosed(lambda array: np.max(array, axis=axes, keepdims=True), found)


def enclosed(rising: Callable[[np.ndarray], np.ndarray], found: Bounded) -> Bounded:
    """A non-decreasing function of float64 arrays: the error is the larger one at the ends of the interval."""
    value = rising(found.value)
    with np.errstate(all="ignore"):
        high, low = rising(found.value + found.error), rising(found.value - found.error)
        error = np.maximum(high - value, value - low)
    return Bounded(value, _settled(value, error))
