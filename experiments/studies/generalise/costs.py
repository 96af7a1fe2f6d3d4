"""What training costs beside a search: the number of operators before which a policy cannot have spent less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.statistics import statistics
from experiments.studies.generalise.plan import Contender
from experiments.studies.generalise.policies import Trained
from experiments.studies.generalise.scores import Regrets

POINTS = 96
"""Places, evenly over the logarithm, at which it is looked whether a search is as good as the policy."""


def break_even(study: Regrets, learned: Contender, trained: Sequence[Trained]) -> dict[str, Any]:
    """Against its reference, for the policy's best of so many episodes.

    `evaluations` and `seconds`: what the policy needs on one operator, what the reference needs until its interquartile mean
    regret is no larger (None where it never is within the study), what training took, and from how many operators on the policy
    has spent less in all: None where it needs more on every operator, or nothing is known of the reference. Training is counted
    too low, and another search, or this one with another end or other values, may need less than the reference: so the number of
    operators is a lower bound.
    """
    plan, reference = study.plan, learned.reference
    evaluations, regret, seconds = study.first(learned.sampled)
    aim = float(statistics.interquartile_mean(regret))
    counts = np.unique(np.geomspace(1, plan.evaluations, POINTS).astype(int))
    reached = statistics.interquartile_mean(study.regret(reference, counts), axis=(0, 1)) <= aim
    labels = plan.labels(reference)
    lines = study.grid(labels[max(labels)])
    longest = float(np.mean([line["elapsed_s"] for row in lines for line in row]))
    times = np.geomspace(1e-5, max(longest, 2e-5), POINTS)
    in_time = statistics.interquartile_mean(study.regret_within(reference, times.tolist()), axis=(0, 1)) <= aim
    steps = float(np.mean([one.steps for one in trained]))
    training = float(np.mean([one.seconds for one in trained]))
    return {
        "regret": aim, "reference": reference,
        "evaluations": _even(float(evaluations.mean()), counts, reached, steps),
        "seconds": _even(float(seconds.mean()), times, in_time, training),
    }  # fmt: skip


def _even(ours: float, places: np.ndarray, reached: np.ndarray, training: float) -> dict[str, float | None]:
    """One currency; `reached` bool of the reference's regret at `places`."""
    needed = float(places[int(np.argmax(reached))]) if reached.any() else None
    saved = 0.0 if needed is None else needed - ours
    return {"ours": ours, "theirs": needed, "training": training, "operators": training / saved if saved > 0 else None}
