"""What a study of generalisation found as plain values with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.statistics import paired
from experiments.studies.generalise.costs import break_even
from experiments.studies.generalise.plan import Contender
from experiments.studies.generalise.scores import Regrets, Task
from experiments.studies.intervals import interval, iqm, iqm_difference, mean
from gensor_gym import operators
from gensor_gym.fingerprint import common, fingerprints
from gensor_gym.operators.shapes.splits import HELD_OUT

NEAR = 0.05
"""Regret within which a program is called near the optimum."""
SIZES = ("smaller", "middle", "larger")
"""Thirds of the tasks by points of their loops."""


def summarise(study: Regrets) -> dict[str, Any]:
    """Everything; `report` beside this says how it is read."""
    plan = study.plan
    return {
        "fingerprint": common(fingerprints(plan.operators, plan.hardware, plan.space).values()),
        "date": study.date,
        "part": plan.part, "split": plan.split,
        "hardware": plan.hardware, "space": plan.space, "evaluations": plan.evaluations,
        "seeds": list(plan.seeds), "begun": plan.begun, "checkpoints": list(plan.checkpoints), "seconds": list(plan.seconds),
        "reference": plan.reference, "processes": plan.processes, "left_out": list(plan.left_out), "unknown": study.unknown,
        "tasks": [
            {
                "operator": task.text, "part": operators.part_of(task.operator, plan.split), "optimum_s": task.certificate.optimum
        ,
                "unscheduled": math.log(task.unscheduled / task.certificate.optimum), "visited": task.certificate.visited,
                "certified_s": task.certificate.seconds,
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
        "policies": {learned.name: _policy(study, learned) for learned in plan.policies},
        "codes": study.codes,
    }  # fmt: skip


def _policy(study: Regrets, learned: Contender) -> dict[str, Any]:
    """What is said of one policy."""
    trained = study.policies[learned.name]
    rounds = {label: _round(study, search, learned.reference) for label, search in study.rounds(learned).items()}
    return {
        "reference": learned.reference,
        "of": learned.of, "training_s": [one.seconds for one in trained], "training_steps": [one.steps for one in trained],
        "rounds": rounds, "break_even": break_even(study, learned, trained),
    }  # fmt: skip


def _round(study: Regrets, search: str, reference: str) -> dict[str, Any]:
    """One round of a policy beside all strategies at the very evaluations that it took on that task with that seed."""
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
        "groups": _groups(study, ours, theirs[reference]),
    }  # fmt: skip


def _groups(study: Regrets, ours: np.ndarray, theirs: np.ndarray) -> list[dict[str, Any]]:
    """Mean regrets by operator class and by size, and the difference to the reference with its interval."""
    found = []
    for name, member in groups_of(study.tasks).items():
        pair = paired.against({"reference": -theirs[member]}, -ours[member], study.plan.resamples, crossed=True)
        found.append(
            {
                "group": name, "tasks": int(member.sum()), "ours": float(ours[member].mean()),
                "theirs": float(theirs[member].mean()), "near": float((ours[member] <= NEAR).mean()),
                "over": pair["reference"][0],
            }
        )  # fmt: skip
    return found


def groups_of(tasks: Sequence[Task]) -> dict[str, np.ndarray]:
    """Members, bool [tasks], of every operator class, the held-out one marked, and of every third by size."""
    kinds = [task.operator.name for task in tasks]
    marked = {kind: f"{kind} (class held out)" if kind == HELD_OUT else kind for kind in sorted(set(kinds))}
    found = {label: np.array([kind == own for own in kinds]) for kind, label in marked.items()}
    if any(kind == HELD_OUT for kind in kinds) and len(marked) > 1:
        found["classes seen in training"] = np.array([kind != HELD_OUT for kind in kinds])
    points = np.array([task.operator.points for task in tasks], dtype=float)
    place = np.argsort(np.argsort(points, kind="stable"), kind="stable") * len(SIZES) // max(1, len(tasks))
    return found | {f"{size} third": place == i for i, size in enumerate(SIZES) if (place == i).any()}
