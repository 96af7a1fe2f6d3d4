"""Values with a bound of how far a right kernel's may be from them.

Errors are absolute, so that cancellation is honest: what is left of two large numbers keeps their errors. Numbers that are not
finite have no error: a kernel must give the same infinity, or a NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

UNDERFLOW = float(np.finfo(np.float32).tiny)
"""Results nearer to zero may come out as zero: generated code may flush them."""
OVERFLOW = float(np.finfo(np.float32).max)
"""Results farther from zero may come out infinite, and what is computed of them as no number: they have no bound."""


MOST_WHOLE = float(1 << 24)
"""Whole numbers up to this are float32 numbers."""


@dataclass(frozen=True)
class Bounded:
    """float64 values, and of each how far a right kernel's may be away; both of one shape."""

    value: np.ndarray
    error: np.ndarray


def exact(value: np.ndarray) -> Bounded:
    """Inputs: what is given has no error."""
    return Bounded(value, np.zeros_like(value))


def rounded(found: Bounded, unit: float, roundings: float) -> Bounded:
    """The same after an operation that rounds so many times; 0 leaves the error as it is."""
    if not roundings:
        return Bounded(found.value, _settled(found.value, found.error))
    with np.errstate(all="ignore"):
        own = roundings * unit * (np.abs(found.value) + found.error) + UNDERFLOW
        return Bounded(found.value, _settled(found.value, found.error + own))


def _settled(value: np.ndarray, error: np.ndarray) -> np.ndarray:
    """No error beside what is infinite or no number; infinite where a bound is no number or the value may leave float32."""
    with np.errstate(all="ignore"):
        lost = np.isnan(error) | (np.abs(value) + error > OVERFLOW)
    return np.where(np.isfinite(value), np.where(lost, np.inf, error), 0.0)


def is_whole(found: Bounded) -> bool:
    """Whether all are whole numbers without error. Most are told by the first of them."""
    value = np.asarray(found.value)
    if value.size and not float(value.flat[0]).is_integer():
        return False
    return not np.any(found.error) and bool((np.rint(value) == value).all())


def gamma(count: int, unit: float) -> float:
    """What n roundings one after another may add up to: n u / (1 - n u), Higham's lemma 3.1; infinite where n u reaches 1."""
    return count * unit / (1.0 - count * unit) if count * unit < 1.0 else float("inf")


def summed(found: Bounded, axes: tuple[int, ...], unit: float) -> Bounded:
    """Sums along axes, kept with extent 1, in whatever order: n - 1 roundings of partial sums (Higham, section 4.2)."""
    count = int(np.prod([np.shape(found.value)[axis] for axis in axes]))
    with np.errstate(all="ignore"):
        value = np.sum(found.value, axis=axes, keepdims=True)
        size = np.sum(np.abs(found.value) + found.error, axis=axes, keepdims=True)
        error = np.sum(found.error, axis=axes, keepdims=True) + gamma(count - 1, unit) * size + count * UNDERFLOW
    return Bounded(value, _settled(value, error))


def largest(found: Bounded, axes: tuple[int, ...]) -> Bounded:
    """Maxima along axes, kept with extent 1: off by no more than the worst of those that may be the largest."""
    return enclosed(lambda array: np.max(array, axis=axes, keepdims=True), found)


def enclosed(rising: Callable[[np.ndarray], np.ndarray], found: Bounded) -> Bounded:
    """A function that never falls where its arguments rise, of float64 arrays: the error is the farther end of what it may be."""
    value = rising(found.value)
    with np.errstate(all="ignore"):
        high, low = rising(found.value + found.error), rising(found.value - found.error)
        error = np.maximum(high - value, value - low)
    return Bounded(value, _settled(value, error))
