"""Verdict whether one kernel is faster than another, slower, the same or ambiguous, from timings, with a stated tolerance."""

from __future__ import annotations

import enum

import numpy as np

from gensor_gym.measure.stats.intervals import CONFIDENCE, quiet_ratio_interval, ratio_interval

TOLERANCE = 0.025
"""Relative difference of two kernels' times below which they count as the same: half of the five percent that must be detected.
"""


class Verdict(enum.StrEnum):
    """Result of comparing the first of two kernels with the second."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    AMBIGUOUS = "AMBIGUOUS"


def verdict(
    a: np.ndarray | list[float] | tuple[float, ...],
    b: np.ndarray | list[float] | tuple[float, ...],
    tolerance: float = TOLERANCE,
    confidence: float = CONFIDENCE,
) -> Verdict:
    """Compare kernel `a` with `b` by seconds per call in common rounds: a[i] and b[i] come from the same round.

    ValueError for lists of different lengths, or a tolerance that is not above 0.
    """
    _, low, high = ratio_interval(list(a), list(b), confidence)
    return verdict_of(low, high, tolerance)


def verdict_apart(
    a: np.ndarray | list[float] | tuple[float, ...],
    b: np.ndarray | list[float] | tuple[float, ...],
    tolerance: float = TOLERANCE,
    confidence: float = CONFIDENCE,
) -> Verdict:
    """Compare kernel `a` with `b` by seconds per call in two separate runs; see `quiet_ratio_interval`."""
    _, low, high = quiet_ratio_interval(list(a), list(b), confidence)
    return verdict_of(low, high, tolerance)


def verdict_of(low: float, high: float, tolerance: float = TOLERANCE) -> Verdict:
    """Return the verdict on two kernels from an interval [low, high] of the first one's time divided by the second one's.

    It is SAME if all of the interval is within the tolerance. Otherwise FASTER if all of it is below 1, SLOWER if all of it is
    above 1, and AMBIGUOUS if it contains 1.
    """
    if not tolerance > 0:
        raise ValueError(f"tolerance={tolerance!r}: expected a share above 0, such as {TOLERANCE}")
    if not 0 < low <= high:
        raise ValueError(f"[{low!r}, {high!r}] is no interval of a ratio of times: expected 0 < low <= high")
    if 1.0 / (1.0 + tolerance) <= low and high <= 1.0 + tolerance:
        return Verdict.SAME
    if high < 1.0:
        return Verdict.FASTER
    return Verdict.SLOWER if low > 1.0 else Verdict.AMBIGUOUS
