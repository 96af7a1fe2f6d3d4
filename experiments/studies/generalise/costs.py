"""What training costs beside a search: the number of operators before which a policy cannot have spent less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.statistics import statistics
from experiments.studies.generalise.plan import Contender
from experiments.studies.generalise.policies import Trained
from experiments.studies.generalise.scores import Regrets
from experiments.studies.intervals import iqm

POINTS = 96
"""Places, evenly over the logarithm, at which it is looked whether a search is as good as the policy."""
SOONEST = 1e-4
"""Seconds, the first of them."""


def break_even(study: Regrets, learned: Contender, trained: Sequence[Trained]) -> dict[str, Any]:
    """Against the best of all strategies, for the policy's best of so many episodes: at equal quality, its own.

    `evaluations` and `seconds`: what the policy needs on one operator, what the strategy needs that is the first to have no
    larger interquartile mean regret (None where none has within the study), what training took, and from how many operators
    on the policy has spent less in all: None where it needs more on every operator.
    """
    plan = study.plan
    evaluations, regret, seconds = study.first(learned.sampled)
    aim = float(statistics.interquartile_mean(regret))
    counts = np.unique(np.geomspace(1, plan.evaluations, POINTS).astype(int))
    times = np.geomspace(SOONEST, plan.longest, POINTS)
    by_count = {name: iqm(study.regret(name, counts)) <= aim for name in plan.strategies}
    by_time = {name: iqm(study.regret_within(name, times.tolist())) <= aim for name in plan.strategies}
    steps = float(np.mean([one.steps for one in trained]))
    training = float(np.mean([one.seconds for one in trained]))
    return {
        "regret": aim,
        "evaluations": _even(float(evaluations.mean()), counts, by_count, steps),
        "seconds": _even(float(seconds.mean()), times, by_time, training),
    }  # fmt: skip


def _even(ours: float, places: np.ndarray, reached: Mapping[str, np.ndarray], training: float) -> dict[str, Any]:
    """One currency; `reached` bool of the strategies' regrets at `places`."""
    needed = {name: float(places[int(np.argmax(at))]) for name, at in reached.items() if at.any()}
    who = min(needed, key=lambda name: needed[name], default=None)
    theirs = None if who is None else needed[who]
    saved = 0.0 if theirs is None else theirs - ours
    return {
        "ours": ours, "theirs": theirs, "who": who, "training": training, "operators": training / saved if saved > 0 else None
    }  # fmt: skip
