"""Jobs of the study of cost models: one training of a learner, or one replay of a recording.

Each gives scores for every operator that was held out.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np

from agents.runs.settings import short_hash
from agents.training.learn_correction import FOLDS, Observed, fitted, rankings
from experiments.studies.cost_models.inputs import Sequences, sequences_of
from experiments.studies.cost_models.learners import listwise_trees, network
from experiments.studies.cost_models.recording import replay
from experiments.studies.study import evenly
from gensor_gym import operators
from gensor_gym.measure.records import measured

SCORES = ("rank", "first", "first4", "first10")
FIRSTS = {"first": 1, "first4": 4, "first10": 10}
CLASSES = (("conv2d",), ("gemm",), ("gemv",), ("avg_pool2d", "max_pool2d"), ("reduce_sum",))
"""Groups of operator classes; the classes of a group are held out together."""
SPLITS = {"operators": FOLDS, "classes": len(CLASSES), "validation": 1}
"""Way to hold out programs -> number of folds.

Operators or classes are held out, or the part `validation`, on which settings are chosen.
"""
LEARNERS = ("model", "trees", "trees_listwise", "trees_sequence", "network", "attention")


@dataclass(frozen=True)
class Job:
    """Base of trainings and replays: which recorded programs are read, and which fold of them is held out."""

    machine: str
    operators: int | None
    """Number of operators whose programs are read; None for all."""
    split: str
    fold: int
    seed: int

    @property
    def key(self) -> str:
        """Hash of the job, sixteen hexadecimal digits."""
        return short_hash({"job": type(self).__name__, **asdict(self)})

    def data(self) -> tuple[Observed, np.ndarray]:
        """Return (recorded programs, bool [B] that marks those held out)."""
        observed = recorded(self.machine, self.operators, self.split == "validation")[0]
        every = map(operators.parse, observed.operators)
        if self.split == "operators":
            out = np.arange(len(observed.operators)) % FOLDS == self.fold
        elif self.split == "classes":
            out = np.array([op.name in CLASSES[self.fold] for op in every])
        else:
            out = np.array([operators.part_of(op) != "train" for op in every])
        return observed, out[observed.groups]


@dataclass(frozen=True)
class Training(Job):
    """One training of a learner on all programs but a fold, and its ranking of the programs of the held-out operators."""

    learner: str
    settings: dict[str, Any]

    def run(self) -> dict[str, Any]:
        """Train and rank; return a row with the scores of each held-out operator and the processor seconds spent."""
        observed, out = self.data()
        sequences = recorded(self.machine, self.operators, self.split == "validation")[1]
        begin = time.process_time()
        found = _predicted(self, observed, sequences, out)
        seconds = time.process_time() - begin
        return {"seconds": round(seconds, 2), **_scored(found, observed, out)}


@dataclass(frozen=True)
class Replay(Job):
    """One replay of a recording: programs are added in one order, and a model is fitted after each budget."""

    order: str
    budgets: tuple[int, ...]

    def run(self) -> dict[str, Any]:
        """Replay; return a row with the programs and operators recorded and the scores of each held-out operator, by budget."""
        observed, out = self.data()
        steps = []
        for at, predicted in replay(observed, out, self.order, self.seed, self.budgets):
            steps.append({
                "programs": len(at), "operators": len(np.unique(observed.groups[at])),
                **_scored(predicted[out], observed, out),
            })  # fmt: skip
        return {"steps": steps}


def work(job: Training | Replay) -> dict[str, Any]:
    """Run a training or a replay and return its row, with its key and settings."""
    return {"key": job.key, **asdict(job), **job.run()}


@cache
def recorded(machine: str, count: int | None, validation: bool) -> tuple[Observed, Sequences]:
    """Return the recorded programs of Measured v1 on a machine, and their sequences, from the train part of the split.

    With `validation`, programs of the validation part are included. `count` limits the number of operators.
    """
    table = measured.load(machine)
    table = table[table.part.isin(("train", "validation") if validation else ("train",))]
    kept = evenly(sorted(table.operator.astype(str).unique()), count)
    observed = Observed.of_table(table[table.operator.isin(kept)], measured.here(machine), "extended", to_learn=not validation)
    return observed, sequences_of(observed)


def _predicted(job: Training, observed: Observed, sequences: Sequences, out: np.ndarray) -> np.ndarray:
    """Return predicted log seconds of the held-out programs, which are right up to a constant for each operator."""
    if job.learner == "model":
        return observed.model[out]
    if job.learner == "trees":
        names = {observed.operators[group] for group in np.unique(observed.groups[out])}
        correction = fitted([observed], job.seed, 1.0, names)
        return observed.features[out, 0] + correction.log_ratio(observed.features[out])
    known = observed.times[~out], np.unique(observed.groups[~out], return_inverse=True)[1]
    if job.learner.startswith("trees"):
        features = job.learner == "trees_listwise"
        inputs = observed.features if features else sequences.flat()
        return listwise_trees(inputs[~out], *known, inputs[out], job.seed, job.settings["sharpness"], features)
    parts = (observed.features,) if job.learner == "network" else sequences.packed()
    given = [tuple(of[mask] for of in parts) for mask in (~out, out)]
    return network(given[0], *known, given[1], job.seed, **job.settings)


def _scored(predicted: np.ndarray, observed: Observed, out: np.ndarray) -> dict[str, list[float]]:
    found = rankings(predicted, observed.times[out], observed.groups[out], FIRSTS)
    return {name: [round(value, 4) for value in found[name]] for name in SCORES}
