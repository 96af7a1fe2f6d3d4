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
"""Regret of programs more than a hundred times slower than the best, and of searches without a program."""
RESAMPLES = 1000
WITHIN = 0.05
"""Regret that counts as equal to the best."""
SECONDS = (0.01, 0.1, 1.0, 10.0)
"""Processor seconds at which the best program measured until then is scored."""
EVALUATIONS = (64, 1024, 16384, 262144)
Scores = Mapping[str, np.ndarray]
Lines = Sequence[Mapping[str, Any]]


def seeds_of(track: Track, lines: Lines) -> Track:
    """The track with only the seeds that an entry has, which are the track's first seeds."""
    return replace(track, seeds=track.seeds[: len({row["seed"] for row in lines})])


def scores_of(track: Track, lines: Lines) -> np.ndarray:
    """Final regrets [tasks, seeds], capped."""
    return np.minimum(seeds_of(track, lines).scores([{**row, "regret": float.fromhex(row["regret"])} for row in lines]), CAP)


def scores_of_first(track: Track, lines: Lines) -> np.ndarray:
    """Regrets [tasks, seeds] of the first measured program, capped."""
    firsts = (CAP if row["curve"][0] is None else min(CAP, row["curve"][0]) for row in lines)
    return seeds_of(track, lines).scores([{**row, "regret": first} for row, first in zip(lines, firsts, strict=True)])


def scores_after(track: Track, lines: Lines, spent: str, limits: Sequence[float]) -> np.ndarray:
    """Regrets [tasks, seeds, limits] of the best program measured within each limit of `spent`, `processor_s` or `asked`."""
    own = seeds_of(track, lines)
    return np.stack([own.scores([{**row, "regret": _after(row, spent, most)} for row in lines]) for most in limits], axis=-1)


def _after(row: Mapping[str, Any], spent: str, most: float) -> float:
    """Capped regret of one search after `most` of the quantity `spent`; CAP before the first measurement."""
    known = [CAP if value is None else value for value, at in zip(row["curve"], row[spent], strict=False) if at <= most]
    return min(CAP, known[-1]) if known else CAP


def interval(scores: np.ndarray) -> tuple[float, float]:
    """Bootstrap interval of the interquartile mean."""
    low, high = statistics.bootstrap(iqm, scores, resamples=RESAMPLES)
    return float(low), float(high)


def tiers(scores: Scores) -> list[list[str]]:
    """Tiers of agents, best first: each has the best remaining agent and all remaining agents not significantly worse than it.

    Significantly worse means that the interval of the difference of interquartile means is above zero. The bootstrap draws tasks
    as well as seeds; if one agent has fewer seeds, only as many first seeds of the other agent count.
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
    """Whether the first agent is significantly worse than the second, by the bootstrap that `tiers` describes."""

    def difference(one: np.ndarray, other: np.ndarray) -> float:
        return float(iqm(one) - iqm(other))

    seeds = min(worse.shape[1], better.shape[1])
    low, _ = statistics.bootstrap(difference, worse[:, :seeds], better[:, :seeds], resamples=RESAMPLES)
    return bool(low > 0)


@dataclass(frozen=True)
class Standing:
    """The entries of a track, with their scores."""

    track: Track
    lines: Mapping[str, Lines]
    """Agent -> lines of its entry."""
    scores: Scores
    tiers: list[list[str]]

    @classmethod
    def of(cls, track: Track, lines: Mapping[str, Lines]) -> Standing:
        """Score verified lines."""
        scores = {agent: scores_of(track, rows) for agent, rows in lines.items()}
        return cls(track, lines, scores, tiers(scores))

    @property
    def agents(self) -> list[str]:
        """Names of the agents, tier by tier and best first."""
        return [agent for names in self.tiers for agent in sorted(names, key=lambda name: (iqm(self.scores[name]), name))]


def standings(suite: Suite, entries: Mapping[str, Mapping[str, Lines]]) -> list[Standing]:
    """Standings of the tracks that have entries, in the suite's order."""
    return [Standing.of(track, entries[name]) for name, track in suite.tracks.items() if entries.get(name)]


def learned(standing: Standing, agent: str) -> np.ndarray | None:
    """Learning curves of an agent: [searches, points, (steps, mean regret of the last episodes, best so far)], nan if missing.

    None if a search of the agent has no curve.
    """
    curves = [row["learning"] for row in standing.lines[agent]]
    if any(not curve for curve in curves):
        return None
    return np.array(curves, dtype=float)  # None becomes nan
