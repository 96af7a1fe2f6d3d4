"""Scores of a frozen suite's entries: final regrets, regrets after seconds or evaluations, and tiers of agents.

Statistics are those of `experiments.common.statistics`, defined by Agarwal et al. (NeurIPS 2021), the paper of the package
`rliable`. A test compares them with that package if it is installed. The package's intervals resample only seeds, within each
task; the intervals here resample tasks as well, and are wider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from experiments.common import statistics
from experiments.common.statistics import interquartile_mean as iqm
from gensor_gym.suites import Suite, Track

CAP = float(np.log(100))
"""Largest regret that counts, log(100); programs over 100 times slower and searches without a program get it."""
RESAMPLES = 1000
WITHIN = 0.05
"""Excess over the best time within which a search counts as having found the best."""
SECONDS = (0.01, 0.1, 1.0, 10.0)
"""Processor seconds after which a table scores the best program measured until then."""
EVALUATIONS = (64, 1024, 16384, 262144)
Scores = Mapping[str, np.ndarray]
Lines = Sequence[Mapping[str, Any]]


def seeds_of(track: Track, lines: Lines) -> Track:
    """Return the track with only as many of its first seeds as the lines of an entry have."""
    return replace(track, seeds=track.seeds[: len({row["seed"] for row in lines})])


def scores_of(track: Track, lines: Lines) -> np.ndarray:
    """Return the final regret of each search of an entry, [tasks, seeds], at most `CAP`."""
    return np.minimum(seeds_of(track, lines).scores([{**row, "regret": float.fromhex(row["regret"])} for row in lines]), CAP)


def scores_of_first(track: Track, lines: Lines) -> np.ndarray:
    """Return the regret of each search's first measured program, [tasks, seeds], at most `CAP`."""
    firsts = (CAP if row["curve"][0] is None else min(CAP, row["curve"][0]) for row in lines)
    return seeds_of(track, lines).scores([{**row, "regret": first} for row, first in zip(lines, firsts, strict=True)])


def scores_after(track: Track, lines: Lines, spent: str, limits: Sequence[float]) -> np.ndarray:
    """Return the regret of the best program that each search measured within given limits, [tasks, seeds, limits].

    `spent` names what is limited: `processor_s` (seconds) or `asked` (evaluations of the model).
    """
    own = seeds_of(track, lines)
    return np.stack([own.scores([{**row, "regret": _after(row, spent, most)} for row in lines]) for most in limits], axis=-1)


def _after(row: Mapping[str, Any], spent: str, most: float) -> float:
    """Return the regret of a search after it spent `most` of the quantity `spent`, at most `CAP`; `CAP` before any trial."""
    known = [CAP if value is None else value for value, at in zip(row["curve"], row[spent], strict=False) if at <= most]
    return min(CAP, known[-1]) if known else CAP


def interval(scores: np.ndarray) -> tuple[float, float]:
    """Return the (low, high) ends of the bootstrap interval of the interquartile mean of scores [tasks, seeds]."""
    low, high = statistics.bootstrap(iqm, scores, resamples=RESAMPLES)
    return float(low), float(high)


def tiers(scores: Scores) -> list[list[str]]:
    """Group agents into tiers, best first; each tier has the best remaining agent and those not significantly worse than it.

    An agent is significantly worse if the interval of the difference of interquartile means is above zero. The bootstrap draws
    tasks as well as seeds; if one agent has fewer seeds, only as many first seeds of the other agent count.
    """
    left = sorted(scores, key=lambda name: (iqm(scores[name]), name))
    found: list[list[str]] = []
    while left:
        best = left[0]
        same = [name for name in left if name == best or not _apart(scores[name], scores[best])]
        found.append(same)
        left = [name for name in left if name not in same]
    return found


def _apart(worse: np.ndarray, better: np.ndarray) -> bool:
    """Return whether the scores `worse` are significantly worse than `better`, by the bootstrap that `tiers` describes."""

    def difference(one: np.ndarray, other: np.ndarray) -> float:
        return float(iqm(one) - iqm(other))

    seeds = min(worse.shape[1], better.shape[1])
    low, _ = statistics.bootstrap(difference, worse[:, :seeds], better[:, :seeds], resamples=RESAMPLES)
    return bool(low > 0)


@dataclass(frozen=True)
class Standing:
    """The entries of all agents on one track, with their scores and tiers."""

    track: Track
    lines: Mapping[str, Lines]
    """Agent -> lines of its entry, one for each search."""
    scores: Scores
    tiers: list[list[str]]

    @classmethod
    def of(cls, track: Track, lines: Mapping[str, Lines]) -> Standing:
        """Score verified lines."""
        scores = {agent: scores_of(track, rows) for agent, rows in lines.items()}
        return cls(track, lines, scores, tiers(scores))

    @property
    def agents(self) -> list[str]:
        """Names of the agents from the best to the worst: tier by tier, within a tier by interquartile mean."""
        return [agent for names in self.tiers for agent in sorted(names, key=lambda name: (iqm(self.scores[name]), name))]


def standings(suite: Suite, entries: Mapping[str, Mapping[str, Lines]]) -> list[Standing]:
    """Return the standing of every track that has entries, in the suite's order; `entries` are lines by track and agent."""
    return [Standing.of(track, entries[name]) for name, track in suite.tracks.items() if entries.get(name)]


def learned(standing: Standing, agent: str) -> np.ndarray | None:
    """Return the learning curves of an agent's searches, float64 [searches, points, 3]; None if a search has no curve.

    A point has the steps, the mean regret of the episodes since the last point, and the best regret so far; nan if missing.
    """
    curves = [row["learning"] for row in standing.lines[agent]]
    if any(not curve for curve in curves):
        return None
    return np.array(curves, dtype=float)  # None becomes nan
