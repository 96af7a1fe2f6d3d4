"""The summary of a study of generalisation: values with their intervals, and the cost of training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.statistics import paired, statistics
from experiments.studies.generalise.plan import Contender
from experiments.studies.generalise.policies import Trained
from experiments.studies.generalise.scores import Regrets, Task
from experiments.studies.scores import interval, iqm, iqm_difference, mean
from gensor_gym import operators
from gensor_gym.fingerprint import common, fingerprints
from gensor_gym.operators.shapes.splits import HELD_OUT

NEAR = 0.05
"""Largest regret of a program that counts as near the optimum."""
SIZES = ("smaller", "middle", "larger")
"""Names of the thirds of the tasks by the number of loop points."""
POINTS, SOONEST = 96, 1e-4
"""Number of logarithmically spaced points at which a search is compared with the policy; the first point in seconds."""


def summarise(study: Regrets) -> dict[str, Any]:
    """All values of the study as a JSON object, which `report` puts into words."""
    plan = study.plan
    return {
        "fingerprint": common(fingerprints(plan.operators, plan.hardware, plan.space).values()),
        "date": max(row["date"] for row in study.rows.values()), "part": plan.part, "split": plan.split,
        "hardware": plan.hardware, "space": plan.space, "evaluations": plan.evaluations,
        "seeds": list(plan.seeds), "begun": plan.begun, "checkpoints": list(plan.checkpoints), "seconds": list(plan.seconds),
        "reference": plan.config["reference"], "processes": plan.processes, "left_out": list(plan.left_out),
        "unknown": study.unknown,
        "tasks": [
            {
                "operator": task.text, "part": operators.part_of(task.operator, plan.split),
                "optimum_s": task.certificate.optimum, "unscheduled": math.log(task.unscheduled / task.certificate.optimum),
                "visited": task.certificate.visited, "certified_s": task.certificate.seconds,
            }
            for task in study.tasks
        ],
        "strategies": {
            name: {
                "regret": interval(iqm, study.regret(name, plan.checkpoints), plan.resamples),
                "within": interval(iqm, study.regret_within(name, plan.seconds), plan.resamples),
            }
            for name in study.names
        },
        "policies": {learned.name: _policy(study, learned, study.policies[learned.name]) for learned in plan.policies},
        "codes": sorted({row["code"] for row in study.rows.values()}),
    }  # fmt: skip


def _policy(study: Regrets, learned: Contender, trained: Sequence[Trained]) -> dict[str, Any]:
    """Summary values of one policy."""
    return {
        "reference": learned.reference, "of": learned.of,
        "training_s": [one.seconds for one in trained], "training_steps": [one.steps for one in trained],
        "rounds": {label: _round(study, search, learned.reference) for label, search in study.rounds(learned).items()},
        "break_even": break_even(study, learned, trained),
    }  # fmt: skip


def _round(study: Regrets, search: str, reference: str) -> dict[str, Any]:
    """Values of a policy's round, and of all strategies after the same evaluations on each task with each seed."""
    plan = study.plan
    evaluations, regret, seconds = study.first(search)
    ours = regret[..., None]
    theirs = {name: study.regret(name, evaluations[..., None]) for name in plan.strategies}
    differences = paired.against({name: -other for name, other in theirs.items()}, -ours, plan.resamples, crossed=True)
    return {
        "evaluations": float(evaluations.mean()), "seconds": float(seconds.mean()),
        "cut": int((evaluations >= plan.evaluations).sum()),
        "iqm": interval(iqm, ours, plan.resamples)[0], "mean": interval(mean, ours, plan.resamples)[0],
        "near": float((regret <= NEAR).mean()), "optimal": float((regret == 0.0).mean()),
        "beside": {
            name: {
                "iqm": interval(iqm, other, plan.resamples)[0], "mean": float(other.mean()), "over": differences[name][0],
                "iqm_over": iqm_difference(ours, other, plan.resamples),
            }
            for name, other in theirs.items()
        },
        "groups": [_group(study, name, ours[of], theirs[reference][of]) for name, of in groups_of(study.tasks).items()],
    }  # fmt: skip


def _group(study: Regrets, name: str, ours: np.ndarray, theirs: np.ndarray) -> dict[str, Any]:
    """Mean regrets in a group of tasks, and the difference from the reference with its interval."""
    pair = paired.against({"reference": -theirs}, -ours, study.plan.resamples, crossed=True)
    return {
        "group": name, "tasks": len(ours), "ours": float(ours.mean()), "theirs": float(theirs.mean()),
        "near": float((ours <= NEAR).mean()), "over": pair["reference"][0],
    }  # fmt: skip


def groups_of(tasks: Sequence[Task]) -> dict[str, np.ndarray]:
    """Group -> mask bool [tasks]: every operator class, with the held-out class marked, and every third by size."""
    kinds = [task.operator.name for task in tasks]
    marked = {kind: f"{kind} (class held out)" if kind == HELD_OUT else kind for kind in sorted(set(kinds))}
    found = {label: np.array([kind == own for own in kinds]) for kind, label in marked.items()}
    if HELD_OUT in kinds and len(marked) > 1:
        found["classes seen in training"] = np.array([kind != HELD_OUT for kind in kinds])
    points = np.array([task.operator.points for task in tasks], dtype=float)
    place = np.argsort(np.argsort(points, kind="stable"), kind="stable") * len(SIZES) // max(1, len(tasks))
    return found | {f"{size} third": place == i for i, size in enumerate(SIZES) if (place == i).any()}


def break_even(study: Regrets, learned: Contender, trained: Sequence[Trained]) -> dict[str, Any]:
    """Costs of a policy's best of several episodes, compared with the first strategy that reaches its interquartile mean regret.

    `evaluations` and `seconds` each have the policy's cost per operator, the first strategy's cost (None if none gets as good
    within the study), the cost of training, and the number of operators from which the policy costs less in total (None if it
    costs more on each).
    """
    plan = study.plan
    evaluations, regret, seconds = study.first(learned.sampled)
    aim = float(statistics.interquartile_mean(regret))
    counts = np.unique(np.geomspace(1, plan.evaluations, POINTS).astype(int))
    times = np.geomspace(SOONEST, plan.longest, POINTS)
    by_count = {name: iqm(study.regret(name, counts)) <= aim for name in plan.strategies}
    by_time = {name: iqm(study.regret_within(name, times)) <= aim for name in plan.strategies}
    steps, training = (float(np.mean([getattr(one, name) for one in trained])) for name in ("steps", "seconds"))
    return {
        "regret": aim,
        "evaluations": _even(float(evaluations.mean()), counts, by_count, steps),
        "seconds": _even(float(seconds.mean()), times, by_time, training),
    }  # fmt: skip


def _even(ours: float, places: np.ndarray, reached: Mapping[str, np.ndarray], training: float) -> dict[str, Any]:
    """Break-even values in one unit of cost; `reached` masks, by strategy, the costs `places` at which it equals the policy."""
    needed = {name: float(places[int(np.argmax(at))]) for name, at in reached.items() if at.any()}
    who = min(needed, key=lambda name: needed[name], default=None)
    theirs = None if who is None else needed[who]
    even = training / (theirs - ours) if theirs is not None and theirs > ours else None
    return {"ours": ours, "theirs": theirs, "who": who, "training": training, "operators": even}
