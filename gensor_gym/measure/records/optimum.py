"""The best programs of a complete table of timings, and the regret of every other program.

Timings are noisy, so several programs are tied with the program of least median. A program is tied unless the 95 percent
bootstrap interval of the ratio of their medians is above one. Samples of one pass over the table are correlated (a machine
drifts). So the bootstrap draws passes first, the same for both programs, then short blocks of neighbouring samples within each
pass. A table of one pass does not show the drift between passes; the drift must come from other tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gensor_gym.measure.stats.intervals import CONFIDENCE

RESAMPLES = 1000
REACH = 4.0
"""Two programs whose samples are more than this number of standard deviations of drift apart are never counted as tied."""


@dataclass(frozen=True)
class Optimum:
    """The best program of a table, and how uncertain it is. `best` is the program's median in seconds.

    `tied` bool [N] marks the programs that are statistically tied with it. `floor` is the noise floor of a regret: if the best
    program is measured twice, the log ratio of the two medians is below `floor` in 97.5 of 100 cases, so smaller differences are
    noise.
    """

    best: float
    tied: np.ndarray
    floor: float

    def regret(self, index: int, seconds: float) -> float:
        """Return the regret of program `index`, whose median is `seconds`: log(median / best median); zero for tied programs."""
        return 0.0 if self.tied[index] else math.log(seconds / self.best)


def find_optimum(
    samples: Sequence[Sequence[float]], passes: Sequence[Sequence[int]], seed: int = 0, drift: float = 0.0
) -> Optimum:
    """Find the best of N programs, and the programs tied with it, from raw samples in seconds.

    A program without samples has failed. `passes` has for each sample the number of the pass over the table in which it was
    taken; an empty list means one pass. `drift` is the standard deviation of the log of a program's median from pass to pass, for
    samples of one pass. ValueError if no program has samples, or for a drift below zero.
    """
    if not drift >= 0.0:
        raise ValueError(f"drift {drift!r}: expected a standard deviation, 0 or more")
    medians = np.array([np.median(values) if len(values) else np.inf for values in samples])
    if not np.isfinite(medians).any():
        raise ValueError("no program has samples: there is no best one")
    at = int(medians.argmin())
    best = _by_pass(samples[at], passes[at])
    rng = np.random.default_rng(seed)
    labels = list(best)
    drawn = rng.integers(0, len(labels), size=(RESAMPLES, len(labels)))
    base = _drifted(_resampled(best, labels, drawn, rng), drift, rng)
    highest, tied = max(samples[at]) * math.exp(REACH * drift), np.zeros(len(samples), dtype=np.bool_)
    for i, values in enumerate(samples):
        if len(values) and min(values) <= highest:  # without overlap of the samples no draw could make the medians equal
            groups = _by_pass(values, passes[i])
            common = drawn if list(groups) == labels else rng.integers(0, len(groups), size=(RESAMPLES, len(groups)))
            ratios = _drifted(_resampled(groups, list(groups), common, rng), drift, rng) / base
            tied[i] = np.quantile(ratios, 0.5 - CONFIDENCE / 2) <= 1.0
    tied[at] = True
    again = _drifted(_resampled(best, labels, rng.integers(0, len(labels), size=drawn.shape), rng), drift, rng)
    floor = math.log(np.quantile(again / base, 0.5 + CONFIDENCE / 2))
    return Optimum(float(medians[at]), tied, max(floor, 0.0))


def _drifted(medians: np.ndarray, drift: float, rng: np.random.Generator) -> np.ndarray:
    """Multiply each of the medians [R] by a random drift, as if it had been measured in a separate pass. Return the products."""
    return medians * np.exp(drift * rng.standard_normal(len(medians))) if drift else medians


def _by_pass(values: Sequence[float], passes: Sequence[int]) -> dict[int, np.ndarray]:
    """Group a program's samples by the pass in which they were taken, in order. Without pass numbers, all are in one pass."""
    numbers = passes if len(passes) == len(values) else [0] * len(values)
    return {p: np.array([v for v, q in zip(values, numbers, strict=True) if q == p]) for p in sorted(set(numbers))}


def _resampled(groups: dict[int, np.ndarray], labels: list[int], drawn: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Resample a program's timings R times. Return the median of each resample, [R].

    `groups` has the samples of each pass, `labels` are the passes. `drawn` [R, P] has the indices in `labels` of the P passes of
    each resample; blocks of neighbouring samples are drawn from these.
    """
    size = max(len(group) for group in groups.values())
    padded = np.stack([np.resize(groups[label], size) for label in labels])
    block = max(1, round(size ** (1 / 3)))
    starts = rng.integers(0, size, size=(*drawn.shape, -(-size // block)))
    index = ((starts[..., None] + np.arange(block)) % size).reshape(*drawn.shape, -1)[..., :size]
    return np.median(padded[drawn[..., None], index].reshape(len(drawn), -1), axis=1)
