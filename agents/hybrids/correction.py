"""A learned correction of the analytic model: boosted trees that predict log(measured / model) from terms and knobs.

Trained on operators of the train part, used on any: no feature identifies the operator. Each operator's mean is subtracted first,
because only the order of its programs matters. This is a second model on top of the first, and no policy.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from agents.policies.card import CARD
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.files import write_whole
from gensor_gym.fingerprint import common, fingerprints
from gensor_gym.foreign import meant, read_json
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import KNOB

ROUNDS = 120
SETTINGS: dict[str, Any] = {
    "objective": "reg:squarederror", "max_depth": 3, "eta": 0.06, "subsample": 0.8, "colsample_bytree": 0.6,
    "min_child_weight": 4, "lambda": 2.0, "nthread": 1, "seed": 0, "verbosity": 0,
}  # fmt: skip
"""Small trees: some hundreds of measurements are all there is. Set by hand before any was made."""
LEAST = 1e-4
"""Share of the latency below which a term counts as nothing."""


def features_of(graph: ConstructionGraph, schedules: list[Schedule]) -> np.ndarray:
    """Float32 [B, F]: the model's terms as logarithms of their share of the latency, and the values of all knobs."""
    found = []
    for schedule in schedules:
        terms = np.array(list(graph.terms(schedule).values()))
        shares = np.log(np.maximum(terms / max(float(terms.max()), 1e-30), LEAST))
        knobs = [float(knob.values[schedule.row[KNOB + i]]) for i, knob in enumerate(KNOBS)]
        found.append(np.concatenate([shares, knobs]))
    return np.array(found, dtype=np.float32)


@dataclass(frozen=True)
class Correction:
    """A fitted booster."""

    booster: Any

    @classmethod
    def fit(cls, features: np.ndarray, log_ratios: np.ndarray, groups: np.ndarray) -> Correction:
        """Learn log(measured / model) float64 [B] of features [B, F]; `groups` int64 [B] says whose mean is taken away."""
        import xgboost

        labels = centred(log_ratios, groups)
        return cls(xgboost.train(SETTINGS, xgboost.DMatrix(features, label=labels), num_boost_round=ROUNDS))

    def log_ratio(self, graph: ConstructionGraph, schedules: list[Schedule]) -> np.ndarray:
        """Predicted log(measured / model) up to a constant of the operator, float64 [B]."""
        return self.predict(features_of(graph, schedules))

    def predict(self, features: np.ndarray) -> np.ndarray:
        """As `log_ratio`, of features [B, F]."""
        import xgboost

        return np.asarray(self.booster.predict(xgboost.DMatrix(features)), dtype=np.float64)

    def save(self, folder: Path, card: dict[str, Any]) -> None:
        """Write correction.json and its card.json; the card names `operators`, `hardware` and `space` of the measurements."""
        folder.mkdir(parents=True, exist_ok=True)
        self.booster.save_model(folder / "correction.json")
        write_whole(folder / CARD, (json.dumps({**card, "fingerprint": _fingerprint(card)}, indent=1) + "\n").encode())


def centred(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Values [B] less the mean of their group."""
    means = np.bincount(groups, weights=values) / np.maximum(1, np.bincount(groups))
    found: np.ndarray = values - means[groups]
    return found


def _fingerprint(card: dict[str, Any]) -> str:
    """Fingerprint of the training tasks of a correction: its features are the model's terms for them."""
    return common(fingerprints(map(operators.parse, card["operators"]), card["hardware"], card["space"]).values())


@lru_cache(maxsize=4)
def load_correction(folder: str) -> Correction:
    """The correction in a folder. FileNotFoundError says how to learn one, ValueError that it is of another fingerprint."""
    import xgboost

    path = Path(folder) / "correction.json"
    if not path.exists():
        raise FileNotFoundError(f"no correction at {path}; learn one: python -m experiments learn_correction output={folder}")
    card = read_json(Path(folder) / CARD)
    with meant(Path(folder) / CARD, "card of a correction"):
        learned, now = card["fingerprint"], _fingerprint(card)
    if learned != now:
        raise ValueError(f"correction {path} was learned on tasks of fingerprint {learned}, which have {now} here: learn another")
    read_json(path)
    booster = xgboost.Booster(SETTINGS)
    try:
        booster.load_model(path)
    except xgboost.core.XGBoostError as error:
        raise ValueError(f"correction {path} does not read: {' '.join(str(error).split())[:200]}") from error
    return Correction(booster)
