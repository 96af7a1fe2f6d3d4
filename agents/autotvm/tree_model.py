"""Gradient-boosted trees as a cost model, with the settings of AutoTVM's authors.

Labels are throughput relative to the best observed, 0 for failures. The objective `rank` compares pairs, because the search only
takes the best; `regression` fits the label (Chen et al., NeurIPS 2018, section 3.2; numbers from the released tuner). Boosting
ends when the average recall of the best programs on the training data has not increased for 20 rounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from gensor_gym.registry import check_known

OBJECTIVES = {"rank": "rank:pairwise", "regression": "reg:squarederror"}
PAIRS = 16
"""Number of random partners of every program in a round of objective `rank`; the authors' XGBoost drew 1.

After training on 256 programs (two products, model times), rank correlations on unseen programs are 0.73 and 0.94 with 16
partners, 0.58 and 0.91 with 1.
"""
_LEAST_SPREAD = 1e-9


class CostModel(Protocol):
    """A model that learns to score the programs of a task from their measured speeds."""

    def fit(self, features: np.ndarray, labels: np.ndarray, margin: np.ndarray | None = None) -> None:
        """Fit the model to labels float [B] (throughputs relative to the best) of programs with features float32 [B, F].

        If another model has predicted a `margin` [B], this model learns what must be added to it.
        """

    def predict(self, features: np.ndarray, margin: np.ndarray | None = None) -> np.ndarray:
        """Return scores float64 [B], including the margin [B]. A larger score predicts a faster program."""


@dataclass
class TreeModel:
    """A cost model that consists of one XGBoost booster."""

    objective: str = "rank"
    recall_of: int = 64
    """Number of best programs by whose average recall boosting ends (`top` of `average_recall`)."""
    rounds: int = 8000
    patience: int = 20
    depth: int = 3
    rate: float = 0.3
    seed: int = 0
    threads: int = 1
    _booster: Any = field(default=None, init=False)
    _columns: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64), init=False)

    def __post_init__(self) -> None:
        check_known("objective", self.objective, OBJECTIVES)

    def fit(
        self, features: np.ndarray, labels: np.ndarray, margin: np.ndarray | None = None, groups: Sequence[int] = ()
    ) -> None:
        """Fit the booster; see `CostModel.fit` for the other arguments.

        `groups` are the sizes of consecutive tasks in the data; with objective `rank`, only programs of one task are compared.
        """
        import xgboost

        varying = np.flatnonzero(np.ptp(features, axis=0) > _LEAST_SPREAD)
        self._columns = varying if len(varying) else np.zeros(1, dtype=np.int64)
        data = xgboost.DMatrix(features[:, self._columns], label=labels, base_margin=margin, nthread=self.threads)
        if self.objective == "rank":
            data.set_group([len(labels)] if not groups else list(groups))
        stop = xgboost.callback.EarlyStopping(rounds=self.patience, metric_name="recall", data_name="train", maximize=True)

        def recall(scores: np.ndarray, _: Any) -> tuple[str, float]:
            return "recall", average_recall(scores, labels, self.recall_of)

        self._booster = xgboost.train(
            self._settings(), data, num_boost_round=self.rounds, evals=[(data, "train")],
            custom_metric=recall, callbacks=[stop], verbose_eval=False,
        )  # fmt: skip

    def predict(self, features: np.ndarray, margin: np.ndarray | None = None) -> np.ndarray:
        """Return scores float64 [B] of programs; see `CostModel.predict`.

        Before the first fit, the scores are the margin, or 0 without a margin.
        """
        if self._booster is None:
            return np.zeros(len(features)) if margin is None else np.asarray(margin, dtype=np.float64)
        kept = (0, self._booster.best_iteration + 1)
        columns = np.ascontiguousarray(features[:, self._columns])
        found = self._booster.inplace_predict(columns, iteration_range=kept, predict_type="margin", base_margin=margin)
        return np.asarray(found, dtype=np.float64)

    def _settings(self) -> dict[str, Any]:
        """Return the parameters of XGBoost, those of the authors' tuner except the number of random partners (`PAIRS`)."""
        settings: dict[str, Any] = {
            "objective": OBJECTIVES[self.objective], "max_depth": self.depth, "eta": self.rate, "gamma": 1e-4,
            "min_child_weight": 1, "subsample": 1.0, "lambda": 1.0, "alpha": 0, "nthread": self.threads, "seed": self.seed,
            "base_score": 0.5, "disable_default_eval_metric": 1, "verbosity": 0,
        }  # fmt: skip
        if self.objective == "rank":
            pairs = {"pair_method": "mean", "num_pair_per_sample": PAIRS, "normalization": False}
            settings |= {f"lambdarank_{name}": value for name, value in pairs.items()}
        return settings


def average_recall(scores: np.ndarray, labels: np.ndarray, top: int) -> float:
    """Return the mean, over n = 1 .. `top`, of the share of the n best programs that are among the n with the best scores."""
    count = len(labels)
    place, truth = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    place[np.argsort(-np.asarray(scores), kind="stable")] = np.arange(count)
    truth[np.argsort(-np.asarray(labels), kind="stable")] = np.arange(count)
    both = np.cumsum(np.bincount(np.maximum(place, truth), minlength=count))
    limit = min(top, count)
    return float(np.mean(both[:limit] / np.arange(1, limit + 1)))


@dataclass
class Ensemble:
    """Boosters on random subsets of the data, whose disagreement estimates the model's uncertainty.

    A program's value is the mean score for `acquisition="mean"`, mean + 2.576 standard deviations for `ucb`, and the expected
    improvement over the best label, 1, for `ei` (AutoTVM's study of acquisition functions). The authors use 6 boosters with the
    regression objective, each on 80 % of the data, drawn without replacement.
    """

    members: Sequence[TreeModel]
    acquisition: str = "ei"
    share: float = 0.8
    seed: int = 0

    def __post_init__(self) -> None:
        if self.acquisition not in ("mean", "ucb", "ei"):
            raise ValueError(f"acquisition {self.acquisition!r}: expected mean, ucb or ei")

    def fit(self, features: np.ndarray, labels: np.ndarray, margin: np.ndarray | None = None) -> None:
        """Fit every booster to its own random subset of the data; see `CostModel.fit` for the arguments."""
        rng = np.random.default_rng(self.seed)
        for member in self.members:
            at = rng.choice(len(labels), size=max(1, int(self.share * len(labels))), replace=False)
            member.fit(features[at], labels[at], None if margin is None else margin[at])

    def predict(self, features: np.ndarray, margin: np.ndarray | None = None) -> np.ndarray:
        """Return the acquisition values float64 [B] of programs; programs with larger values are measured first.

        See `CostModel.predict` for the arguments.
        """
        scores = np.stack([member.predict(features, margin) for member in self.members])
        mean, deviation = scores.mean(axis=0), scores.std(axis=0) + 1e-9
        if self.acquisition == "mean":
            return mean
        if self.acquisition == "ucb":
            return mean + 2.576 * deviation
        return _expected_improvement(mean, deviation)


def _expected_improvement(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Return the expected improvement of normally distributed scores over 1, the best label."""
    above = mean - 1.0
    z = above / deviation
    below = 0.5 * (1.0 + np.array([math.erf(value) for value in z / math.sqrt(2.0)]))
    return above * below + deviation * np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
