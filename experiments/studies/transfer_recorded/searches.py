"""Searches of recorded tuning spaces: a strategy on one recording, begun so many times, as curves of the best so far."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agents.learners.stored import POLICY
from agents.optimize import run
from agents.policies.card import CARD
from agents.recorded.tune import get_strategy_of_spaces
from experiments.common.settings import code_digest, digest_of_file, short_hash
from gensor_gym.measure.session import Budget
from gensor_gym.spaces import TuningSession, load_space


@dataclass(frozen=True)
class RecordedSearch:
    """One strategy of `agents.tune` on one file with one seed."""

    kernel: str
    device: str
    name: str
    """What it is called in the study."""
    space: str
    """The file."""
    of: str
    """Its name among the strategies of recorded spaces."""
    parameters: Mapping[str, Any]
    seed: int
    repeats: int
    trials: int
    timing: str = "reported"

    @property
    def key(self) -> str:
        """Sixteen digits of all that its outcome depends on: files and policies by what they hold, the text of the program."""
        strategy: Any = dataclasses.asdict(get_strategy_of_spaces(self.of, **self.parameters))  # type: ignore[call-overload]
        if folder := strategy.pop("checkpoint", None):
            strategy["policy"] = [digest_of_file(Path(folder) / name) for name in (POLICY, CARD)]
        strategy["spaces"] = [digest_of_file(path) for path in strategy.get("spaces", ())]
        rest = (self.kernel, self.device, self.name, self.of, self.seed, self.repeats, self.trials, self.timing)
        return short_hash([digest_of_file(self.space), strategy, *rest, code_digest(), self.stream(0)])

    def stream(self, repeat: int) -> int:
        """Seed of a repeat's random numbers: others on every task, the same for all strategies of a task."""
        return int(short_hash([self.kernel, self.device, self.seed, repeat]), 16)


def search_recorded(search: RecordedSearch) -> dict[str, Any]:
    """The line of a search: `curves` has for each repeat the trials that were faster than all before, and their seconds."""
    space = load_space(search.space)
    strategy = get_strategy_of_spaces(search.of, **search.parameters)
    curves = []
    for repeat in range(search.repeats):
        session = TuningSession(space, Budget(trials=min(search.trials, len(space))), search.timing)
        run(strategy, session, search.stream(repeat))
        curves.append(improvements([row.seconds for row in session.trace]))
    return {
        "key": search.key, "kernel": search.kernel, "device": search.device, "name": search.name, "seed": search.seed,
        "curves": curves,
    }  # fmt: skip


def improvements(seconds: list[float]) -> list[list[float]]:
    """(numbers of the trials that were faster than all before, from 1 on; their seconds)."""
    best = np.minimum.accumulate(seconds) if seconds else np.empty(0)
    new = np.flatnonzero(best < np.concatenate([[np.inf], best[:-1]])) if seconds else np.empty(0, dtype=int)
    return [(new + 1).tolist(), best[new].tolist()]


def regrets(curves: list[list[list[float]]], checkpoints: list[int], best: float, cap: float) -> np.ndarray:
    """Mean over repeats of log(T / T*) after so many trials, float64 [K]; the slowest time recorded where nothing ran yet."""
    found = []
    for trials, seconds in curves:
        at = np.searchsorted(trials, checkpoints, side="right")
        found.append(np.log(np.array([cap, *seconds])[at] / best))
    return np.mean(found, axis=0)
