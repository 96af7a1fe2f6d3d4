"""Ansor's learned cost model (section 5.2): a program's score is the sum of the scores of its innermost statements.

Trees are fitted to the throughput relative to the task's best, y = fastest seconds / seconds in [0, 1], with the paper's loss y
(sum of f(s) - y)^2. Every statement of a program has the gradient (sum - y) y and the curvature y. Failed programs have y = 0 and
thus no weight, as in the authors' code. One model serves all tasks. Each fit starts from scratch and uses all data. Parameters
are the authors' (TVM v0.8, `xgb_model.py`).
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
"""Maximum number of trees; the fit ends after PATIENCE trees in a row that do not lower the training error."""
GAIN = 1e-4
"""Smallest decrease of the error that counts. The authors count any decrease, which leads to thousands of useless trees."""


@dataclass
class ScoreModel:
    """Ansor's cost model: boosted trees, and the measured programs of one or several tasks to which they are fitted."""

    warmup: int = 100
    """Smallest number of measured programs for a fit (TVM v0.8: num_warmup_sample)."""
    shrinkage: float = 1.0
    """Penalty on the square of a leaf's value: XGBoost's lambda. The authors keep its default, 1."""
    _features: dict[str, list[Statements]] = field(default_factory=dict)
    _seconds: dict[str, list[np.ndarray]] = field(default_factory=dict)
    _trees: xgb.Booster | None = None

    @property
    def count(self) -> int:
        """Number of measured programs."""
        return sum(len(part) for parts in self._seconds.values() for part in parts)

    @property
    def ready(self) -> bool:
        """Whether the model has been fitted and can predict."""
        return self._trees is not None

    def add(self, task: str, features: Statements, seconds: np.ndarray) -> None:
        """Add measured programs of a task: the features of their statements, and their seconds float64 [B].

        Seconds are infinite for failed programs.
        """
        if len(seconds) != features.count:
            raise ValueError(f"{len(seconds)} timings for {features.count} programs: expected one each")
        self._features.setdefault(task, []).append(features)
        self._seconds.setdefault(task, []).append(np.asarray(seconds, dtype=np.float64))

    def fit(self) -> None:
        """Fit the trees from scratch to all data.

        Nothing happens with fewer than `warmup` programs, or if all programs failed.
        """
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
        """Predict scores float64 [B] of programs, which estimate their speed relative to the task's fastest program.

        ValueError before the first fit.
        """
        if self._trees is None:
            raise ValueError(f"the model is not fitted: {self.count} programs measured, {self.warmup} needed")
        return _sums(np.asarray(self._trees.inplace_predict(features.values)), features.program, features.count)


def _sums(values: np.ndarray, program: np.ndarray, count: int) -> np.ndarray:
    return np.bincount(program, weights=values, minlength=count)


def _fitted(features: Statements, target: np.ndarray, shrinkage: float) -> xgb.Booster:
    """Fit boosted trees until 50 (`PATIENCE`) in a row bring no gain; these last trees are kept, as in the authors' code.

    `target` is the throughput of each program relative to the best, and `shrinkage` XGBoost's L2 penalty.
    """
    import xgboost as xgb  # from the extra `lab`; only fitting a model needs it

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
