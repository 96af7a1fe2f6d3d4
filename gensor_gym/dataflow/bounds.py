"""Values with a bound on the error that a correct kernel may make.

Errors are absolute, so cancellation does not weaken the bound: the errors of a difference add up. Infinities and NaN have no
error: a kernel must give the same infinity, or a NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gensor_gym.operators.inputs import from_bfloat16, to_bfloat16

UNDERFLOW = 2.0 * float(np.finfo(np.float32).tiny)
"""Magnitude below which generated code may flush results to zero, such as exponentials below 2^-125."""
OVERFLOW = float(np.finfo(np.float32).max)
"""Magnitude beyond which results may become infinite, and functions of them NaN, so they have no error bound."""
_HALVES = {"bfloat16": (2.0**-8, 2.0**-126, 2.0**128 - 2.0**120), "float16": (2.0**-11, 2.0**-24, 65504.0)}
"""16-bit type -> (unit roundoff, distance of numbers near zero or the largest number flushed to zero, largest number)."""
MOST_WHOLE = float(1 << 24)
"""All integers up to this number are exact in float32."""


@dataclass(frozen=True)
class Bounded:
    """float64 values, and for each a bound on the error that a correct kernel may make. Both arrays have the same shape."""

    value: np.ndarray
    error: np.ndarray


def exact(value: np.ndarray) -> Bounded:
    """Return values with error bounds of 0, such as inputs. One stored zero represents the errors of all elements."""
    return Bounded(value, np.broadcast_to(np.float64(0.0), np.shape(value)))


def rounded(found: Bounded, unit: float, roundings: float, nearest: bool = False) -> Bounded:
    """Return the results of an operation with the error of its `roundings` roundings added to their bounds.

    `unit` is the unit roundoff. `nearest`: the operation returns the nearest number (IEEE 754), so results that float32
    represents exactly get no error.
    """
    if not roundings:
        return Bounded(found.value, _settled(found.value, found.error))
    with np.errstate(all="ignore"):
        own = roundings * unit * (np.abs(found.value) + found.error) + UNDERFLOW
        if nearest and not np.any(found.error):
            own = np.where(_held(found.value), 0.0, own)
        return Bounded(found.value, _settled(found.value, found.error + own))


def stored(found: Bounded, dtype: str) -> Bounded:
    """Return values with the error of rounding to a 16-bit type added to their bounds, unless all are exact in the type.

    The values themselves are not rounded, because a kernel may round later, or not at all if it keeps a value for its own use.
    """
    unit, least, most = _HALVES[dtype]
    with np.errstate(all="ignore"):
        if not np.any(found.error) and np.array_equal(nearest_half(found.value, dtype), found.value, equal_nan=True):
            return found
        error = found.error + unit * (np.abs(found.value) + found.error) + least
        lost = np.isfinite(found.value) & (np.abs(found.value) + error > most)
    return Bounded(found.value, np.where(lost, np.inf, _settled(found.value, error)))


def nearest_half(value: np.ndarray, dtype: str) -> np.ndarray:
    """Round float64 values to the nearest numbers of a 16-bit type, and return them as float32."""
    if dtype == "float16":
        return value.astype(np.float16).astype(np.float32)
    with np.errstate(over="ignore"):
        plain = np.asarray(value, np.float32)
    return np.where(np.isfinite(plain), from_bfloat16(to_bfloat16(plain)), plain)


def _held(value: np.ndarray) -> np.ndarray:
    """Return whether each value is exact in float32 and not flushed to zero, bool."""
    return (np.float32(value) == value) & ((value == 0.0) | (np.abs(value) >= UNDERFLOW))


def _settled(value: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Return the error bounds with two corrections.

    Bounds are 0 for infinite and NaN values; infinite if the bound is NaN or the value may leave float32's range.
    """
    with np.errstate(all="ignore"):
        lost = np.isnan(error) | (np.abs(value) + error > OVERFLOW)
    return np.where(np.isfinite(value), np.where(lost, np.inf, error), 0.0)


def gamma(count: int, unit: float) -> float:
    """Return a bound on the relative error of n = `count` roundings: n u / (1 - n u); infinite if n u reaches 1.

    u is the unit roundoff (Higham, lemma 3.1).
    """
    return count * unit / (1.0 - count * unit) if count * unit < 1.0 else float("inf")


def summed(found: Bounded, axes: tuple[int, ...], unit: float) -> Bounded:
    """Sum values along axes, which keep extent 1, with error bounds for any order of summation.

    A sum of n values has n - 1 roundings of partial sums (Higham, section 4.2). Sums of exact integers are not rounded if the
    magnitudes add up to at most 1 / `unit`.
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
    """Take maxima along axes, which keep extent 1, with error bounds.

    A bound comes from the ends of the elements' intervals, value - error to value + error.
    """
    return enclosed(lambda array: np.max(array, axis=axes, keepdims=True), found)


def joined_rows(function: np.ufunc, array: np.ndarray, ids: np.ndarray, rows: int, start: float) -> np.ndarray:
    """Join the rows of an array [n, ..] that have one id, by a function such as `np.add`, for each id below `rows`.

    The result [rows, ..] begins with `start`. Rows with other ids are left out.
    """
    inside = np.flatnonzero((ids >= 0) & (ids < rows))
    order = inside[np.argsort(ids[inside], kind="stable")]
    found, first = np.unique(ids[order].astype(np.int64), return_index=True)
    made = np.full((rows, *array.shape[1:]), start, array.dtype)
    if len(found):
        made[found] = function(made[found], function.reduceat(array[order], first, axis=0))
    return made


def enclosed(rising: Callable[[np.ndarray], np.ndarray], found: Bounded) -> Bounded:
    """Apply a non-decreasing function to values. The error is the larger error at the two ends of each value's interval."""
    value = rising(found.value)
    with np.errstate(all="ignore"):
        high, low = rising(found.value + found.error), rising(found.value - found.error)
        error = np.maximum(high - value, value - low)
    return Bounded(value, _settled(value, error))
