"""Ansor's learned cost model (section 5.2): a program's score is the sum of the scores of its innermost statements.

Trees are fitted to throughput within a task, y = fastest seconds / seconds in [0, 1], with the paper's loss
y (sum of f(s) - y)^2: every statement of a program has the gradient (sum - y) y and the curvature y. Failed programs have
y = 0, so they weigh nothing, as in the authors' code. One model serves all tasks; it is fitted anew from all data.
Parameters are the authors' (TVM v0.8, `xgb_model.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from agents.ansor.statement_features import Statements

if TYPE_CHECKING:
    import xgboost as xgb

PARAMETERS = {
    "max_depth": 10, "gamma": 0.001, "min_child_weight": 0, "eta": 0.2, "base_score": 0.0, "seed": 43, "nthread": 1,
    "verbosity": 0, "disable_default_eval_metric": True,
}  # fmt: skip
ROUNDS, PATIENCE = 10000, 50
"""Trees at most, and trees without gain in the training error after which fitting ends."""
GAIN = 1e-4
"""Fall of the error that counts as gain. Ours: the authors take any, which makes thousands of trees for nothing."""


@dataclass
class ScoreModel:
    """Measured programs of one or several tasks, and trees fitted to them."""

    warmup: int = 100
    """Programs that must have been measured before anything is predicted (TVM v0.8: num_warmup_sample)."""
    shrinkage: float = 1.0
    """Penalty on the square of a leaf's value (lambda of XGBoost, whose default the authors leave)."""
    _features: dict[str, list[Statements]] = field(default_factory=dict)
    _seconds: dict[str, list[np.ndarray]] = field(default_factory=dict)
    _trees: xgb.Booster | None = None

    @property
    def count(self) -> int:
        """Programs measured."""
        return sum(len(part) for parts in self._seconds.values() for part in parts)

    @property
    def ready(self) -> bool:
        """Whether it predicts."""
        return self._trees is not None

    def add(self, task: str, features: Statements, seconds: np.ndarray) -> None:
        """Programs measured for a task, with their seconds float64 [B], infinite if one failed."""
        if len(seconds) != features.count:
            raise ValueError(f"{len(seconds)} timings for {features.count} programs: expected one each")
        self._features.setdefault(task, []).append(features)
        self._seconds.setdefault(task, []).append(np.asarray(seconds, dtype=np.float64))

    def fit(self) -> None:
        """Fit from scratch to all that was added; nothing happens before there is enough, or where all failed."""
        if self.count < max(self.warmup, 1):
            return
        parts, targets = [], []
        for task, features in self._features.items():
            seconds = np.concatenate(self._seconds[task])
            parts += features
            fastest = float(seconds.min())
            targets.append(fastest / seconds if np.isfinite(fastest) else np.zeros(len(seconds)))
        target = np.concatenate(targets)
        if target.max() > 0:
            self._trees = _fitted(Statements.joined(parts), target, self.shrinkage)

    def predict(self, features: Statements) -> np.ndarray:
        """Scores float64 [B]; about the share of the fastest program's speed. ValueError before the first fit."""
        if self._trees is None:
            raise ValueError(f"the model is not fitted: {self.count} programs measured, {self.warmup} needed")
        return _sums(np.asarray(self._trees.inplace_predict(features.values)), features.program, features.count)


def _sums(values: np.ndarray, program: np.ndarray, count: int) -> np.ndarray:
    """Sum over the statements of every program."""
    return np.bincount(program, weights=values, minlength=count)


def _fitted(features: Statements, target: np.ndarray, shrinkage: float) -> xgb.Booster:
    """Trees up to PATIENCE after the one with the smallest training error: the authors' code predicts with all of them."""
    import xgboost as xgb  # of the extra `lab`: whoever does not fit a model does not need it

    data, program = xgb.DMatrix(features.values), features.program
    weight = target[program]

    def loss(margins: np.ndarray, _: xgb.DMatrix) -> tuple[np.ndarray, np.ndarray]:
        off = (_sums(margins, program, features.count) - target)[program]
        return off * weight, weight

    trees = xgb.Booster(PARAMETERS | {"lambda": shrinkage}, [data])
    best, at = np.inf, 0
    for number in range(ROUNDS):
        trees.update(data, number, fobj=loss)
        off = _sums(trees.predict(data, output_margin=True), program, features.count) - target
        error = float(np.sqrt(np.mean(off**2)))
        if error < best - GAIN:
            best, at = error, number
        if number - at >= PATIENCE:
            break
    return trees
