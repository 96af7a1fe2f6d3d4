"""A learned correction of the analytic model: boosted trees that predict the logarithm of a program's measured time.

The trees are trained on operators of the train part and used on any operator. First, each operator's mean is subtracted from its
logarithms, because only the order of an operator's programs matters. The correction is a second cost model on top of the analytic
model, not a policy.
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
"""File name of the trees in the folder of a correction. It is written last."""
SETTINGS: dict[str, Any] = {
    "objective": "reg:squarederror", "max_depth": 8, "eta": 0.05, "subsample": 0.8, "colsample_bytree": 0.5,
    "min_child_weight": 4, "lambda": 2.0, "nthread": 1, "verbosity": 0,
}  # fmt: skip
ROUNDS = 300
_LOOKED_AT = {"cpu": "cascade_lake", "gpu": "h200"}
NEARER, LEAST_WEIGHT = 2.0, 0.05
"""Constants of a program's training weight, (best time of its operator / its time) ** NEARER, at least LEAST_WEIGHT."""
FINGERPRINTED = 8
"""Maximum number of training tasks that enter the fingerprint of a correction; computing more would take minutes."""


@dataclass(frozen=True)
class Correction:
    """Two fitted boosters that predict the measured time of a program; their mean errs less than each alone.

    One booster predicts log(measured / model), the other log(measured).
    """

    residual: Any
    direct: Any

    @classmethod
    def fit(
        cls, features: np.ndarray, logs: np.ndarray, groups: np.ndarray, seed: int = 0, importance: np.ndarray | None = None
    ) -> Correction:
        """Fit the boosters to features [B, F] of programs and the logarithms `logs` float64 [B] of their measured seconds.

        `groups` int64 [B] numbers the pair of operator and machine of each program. `importance` float64 [B] multiplies the
        programs' weights.
        """
        import xgboost

        over = logs - np.minimum.reduceat(logs[order := np.argsort(groups, kind="stable")], _starts(groups[order]))[groups]
        weights = np.clip(np.exp(-NEARER * over), LEAST_WEIGHT, 1.0) * (1.0 if importance is None else importance)

        def fitted(values: np.ndarray) -> Any:
            data = xgboost.DMatrix(features, label=centred(values, groups, weights), weight=weights)
            return xgboost.train({**SETTINGS, "seed": seed}, data, num_boost_round=ROUNDS)

        return cls(fitted(logs - features[:, 0]), fitted(logs))

    def seconds(self, graph: ConstructionGraph, rows: np.ndarray) -> np.ndarray:
        """Predict the seconds float64 [B] of encoded programs; infinite for illegal programs.

        The seconds are known up to a factor that all programs of the operator share.
        """
        found = graph.latencies(rows)
        legal = np.isfinite(found)
        if legal.any():
            found[legal] *= np.exp(self.log_ratio(features_of(graph, rows[legal])))
        return found

    def log_ratio(self, features: np.ndarray) -> np.ndarray:
        """Predict log(measured / model) float64 [B] of programs with features [B, F], up to a constant for the operator."""
        found = (self.residual.inplace_predict(features) + self.direct.inplace_predict(features) - features[:, 0]) / 2
        return np.asarray(found, dtype=np.float64)

    def save(self, folder: Path, card: dict[str, Any]) -> None:
        """Write the trees and their card, card.json, to a folder.

        `card` has the `operators`, hardware `kind` and `space` of the measurements; their fingerprint is added.
        """
        folder.mkdir(parents=True, exist_ok=True)
        trees = {name: json.loads(booster.save_raw("json")) for name, booster in vars(self).items()}
        write_whole(folder / CARD, (json.dumps({**card, "fingerprint": _fingerprint(card)}, indent=1) + "\n").encode())
        write_whole(folder / FILE, gzip.compress(json.dumps(trees).encode(), mtime=0))


def _starts(ordered: np.ndarray) -> np.ndarray:
    """Return the first index of each number 0, 1, .. in `ordered`, which is ascending and lacks no number up to its last."""
    return np.searchsorted(ordered, np.arange(ordered[-1] + 1))


def centred(values: np.ndarray, groups: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Subtract from each value [B] the weighted mean of its group."""
    means = np.bincount(groups, weights=values * weights) / np.maximum(np.bincount(groups, weights=weights), 1e-300)
    found: np.ndarray = values - means[groups]
    return found


def _fingerprint(card: dict[str, Any]) -> str:
    """Return a common fingerprint of some training tasks, which changes with the terms of the model that was corrected.

    The fingerprint is taken on a machine with fixed constants, because the host's constants vary from measurement to measurement.
    """
    every = max(1, len(card["operators"]) // FINGERPRINTED)
    some = map(operators.parse, card["operators"][::every][:FINGERPRINTED])
    return f"{VERSION}:{common(fingerprints(some, _LOOKED_AT[card['kind']], card['space']).values())}"


@lru_cache(maxsize=4)
def load_correction(folder: str) -> Correction:
    """Load the correction of the analytic model in a folder.

    FileNotFoundError if it is missing, ValueError if it is damaged or was learned under another version of the model.
    """
    import xgboost

    path = Path(folder) / FILE
    if not path.exists():
        raise FileNotFoundError(f"no correction at {path}; learn one: python -m experiments learn_correction output={folder}")
    card = read_json(Path(folder) / CARD)
    with meant(Path(folder) / CARD, "card of a correction"):
        learned, now = card["fingerprint"], _fingerprint(card)
    if learned != now:
        raise ValueError(f"correction {path} was learned on tasks of fingerprint {learned}, which have {now} here: learn another")
    boosters = {name: xgboost.Booster({"nthread": 1, "verbosity": 0}) for name in ("residual", "direct")}
    try:
        trees = parse_object(read_text(path))
        for name, booster in boosters.items():
            booster.load_model(bytearray(json.dumps(trees[name]).encode()))
    except (KeyError, ValueError, xgboost.core.XGBoostError) as error:
        raise ValueError(f"correction {path} does not read: {' '.join(str(error).split())[:200]}") from error
    return Correction(**boosters)
