"""A learned correction of the analytic model: boosted trees that predict log(measured / model) of a program.

Trained on operators of the train part, used on any. Each operator's mean is subtracted first, because only the order of its
programs matters. This is a second model on top of the first, and no policy.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from agents.hybrids.program_features import VERSION, features_of
from agents.policies.card import CARD
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.files import write_whole
from gensor_gym.fingerprint import common, fingerprints
from gensor_gym.foreign import meant, parse_object, read_json, read_text

FILE = "correction.json.gz"
SETTINGS: dict[str, Any] = {
    "objective": "reg:squarederror", "max_depth": 8, "eta": 0.05, "subsample": 0.8, "colsample_bytree": 0.5,
    "min_child_weight": 4, "lambda": 2.0, "nthread": 1, "verbosity": 0,
}  # fmt: skip
ROUNDS = 300
_LOOKED_AT = {"cpu": "cascade_lake", "gpu": "h200"}
FINGERPRINTED = 8
"""Tasks that the fingerprint of a correction looks at: of more it takes minutes."""


@dataclass(frozen=True)
class Correction:
    """A fitted booster."""

    booster: Any

    @classmethod
    def fit(cls, features: np.ndarray, log_ratios: np.ndarray, groups: np.ndarray, seed: int = 0) -> Correction:
        """Learn log(measured / model) float64 [B] of features [B, F]; `groups` int64 [B] says whose mean is taken away."""
        import xgboost

        labels = centred(log_ratios, groups)
        return cls(xgboost.train({**SETTINGS, "seed": seed}, xgboost.DMatrix(features, label=labels), num_boost_round=ROUNDS))

    def seconds(self, graph: ConstructionGraph, rows: np.ndarray) -> np.ndarray:
        """Predicted seconds of rows of the graph up to a constant of the operator, float64 [B]; infinite for illegal programs."""
        found = graph.latencies(rows)
        legal = np.isfinite(found)
        if legal.any():
            found[legal] *= np.exp(self.predict(features_of(graph, rows[legal])))
        return found

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Predicted log(measured / model) up to a constant of the operator, float64 [B], of features [B, F]."""
        import xgboost

        return np.asarray(self.booster.predict(xgboost.DMatrix(features)), dtype=np.float64)

    def save(self, folder: Path, card: dict[str, Any]) -> None:
        """Write the trees and card.json; the card names `operators`, `kind` of hardware and `space` of the measurements."""
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / FILE, gzip.compress(bytes(self.booster.save_raw("json")), mtime=0))
        write_whole(folder / CARD, (json.dumps({**card, "fingerprint": _fingerprint(card)}, indent=1) + "\n").encode())


def centred(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Values [B] less the mean of their group."""
    means = np.bincount(groups, weights=values) / np.maximum(1, np.bincount(groups))
    found: np.ndarray = values - means[groups]
    return found


def _fingerprint(card: dict[str, Any]) -> str:
    """Fingerprint of some of the training tasks of a correction: its features are the model's terms for them.

    They are looked at on a machine whose figures are written down: those of the host differ from measurement to measurement.
    """
    every = max(1, len(card["operators"]) // FINGERPRINTED)
    some = map(operators.parse, card["operators"][::every][:FINGERPRINTED])
    return f"{VERSION}:{common(fingerprints(some, _LOOKED_AT[card['kind']], card['space']).values())}"


@lru_cache(maxsize=4)
def load_correction(folder: str) -> Correction:
    """The correction in a folder. FileNotFoundError says how to learn one, ValueError that it is of another fingerprint."""
    import xgboost

    path = Path(folder) / FILE
    if not path.exists():
        raise FileNotFoundError(f"no correction at {path}; learn one: python -m experiments learn_correction output={folder}")
    card = read_json(Path(folder) / CARD)
    with meant(Path(folder) / CARD, "card of a correction"):
        learned, now = card["fingerprint"], _fingerprint(card)
    if learned != now:
        raise ValueError(f"correction {path} was learned on tasks of fingerprint {learned}, which have {now} here: learn another")
    text = read_text(path)
    booster = xgboost.Booster({"nthread": 1, "verbosity": 0})
    try:
        parse_object(text)
        booster.load_model(bytearray(text.encode()))
    except (ValueError, xgboost.core.XGBoostError) as error:
        raise ValueError(f"correction {path} does not read: {' '.join(str(error).split())[:200]}") from error
    return Correction(booster)
