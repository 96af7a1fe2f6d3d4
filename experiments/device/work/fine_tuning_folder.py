"""The folder of a fine-tuning on a device: every measurement, the state of the learner, the policy with its card.

Four files: `measured.jsonl` a line for each kernel, in the order of arrival; `last.zip` the learner; `policy.safetensors` and
`card.json` a checkpoint that strategies load. The first is never behind what was measured. The others follow every few kernels,
and are made again from it where they are behind.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agents.learners.stored import POLICY
from agents.policies.card import CARD
from experiments.common.journal import read_rows
from experiments.common.results import write_text
from experiments.device.context import StageJournal
from experiments.fine_tuning.arrivals import ArrivingLearner, Asked
from experiments.resuming.archive import read_state, write_state
from gensor_gym.files import whole
from gensor_gym.foreign import read_json
from gensor_gym.measure.measurement import Measurement, Status

MEASURED, LAST = "measured.jsonl", "last.zip"
PARTS = 8
"""Of the measurements, whose kernels are summed up apart."""


class Folder:
    """See the module."""

    def __init__(self, path: Path, journal: StageJournal, begun: Mapping[str, Any]) -> None:
        """`begun`: everything that what is learned depends on, as JSON values.

        ValueError where the folder holds a fine-tuning that was begun with something else: what differs is named.
        """
        self.path, self._journal, self.begun = path, journal, dict(begun)
        path.mkdir(parents=True, exist_ok=True)
        self.lines = list(journal.done.values())
        """Measured in earlier calls, in the order of arrival."""
        self.state = read_state(path / LAST, self._check, "another folder") if (path / LAST).exists() else None
        """Of the learner at its last save; None before there is one."""

    def _check(self, before: Mapping[str, Any]) -> None:
        """ValueError where a state was begun with something else."""
        others = ((name, before.get(name), now) for name, now in self.begun.items())
        if other := [f"{name} {then!r}, now {now!r}" for name, then, now in others if then != now]:
            told = "; ".join(other)
            raise ValueError(f"{self.path} holds a fine-tuning begun with {told}: expected the same, or another folder")

    @property
    def seconds(self) -> float:
        """That earlier calls took, until their last save."""
        return 0.0 if self.state is None else float(self.state["seconds"])

    def put(self, asked: Asked, measured: Measurement) -> None:
        """Write a measurement down."""
        ran = measured.status is Status.OK
        line = {
            "operator": asked.operator, "schedule": str(asked.schedule), "status": measured.status.value, "digest": asked.digest,
            "seconds": measured.seconds if ran else None, "samples": len(measured.samples), "error": measured.error[-300:],
        }  # fmt: skip
        self._journal.put(asked.digest, line)

    def line(self, asked: Asked) -> dict[str, Any]:
        """What was written of it."""
        return self._journal.done[asked.digest]

    def save(self, learner: ArrivingLearner, card: Mapping[str, Any], seconds: float) -> None:
        """The learner, then the policy and its card, each as a whole."""
        write_state(self.path / LAST, self.begun, {**learner.state(), "seconds": seconds})
        whole(self.path / POLICY, learner.save)
        write_text(self.path / CARD, json.dumps(self._card(learner, card, seconds), indent=1) + "\n")

    def _card(self, learner: ArrivingLearner, card: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The card of the policy that it began with, and what was measured since."""
        lines = list(learner.arrived.values())
        found = {
            **self.begun, "reward": "measured", "split": "v1 train", "measurements": len(lines),
            "failed": sum(line["seconds"] is None for line in lines),
            "measured_operators": sorted({str(line["operator"]) for line in lines}), "seconds": round(seconds, 1),
            "steps": learner.num_timesteps, "trained_on_model_s": card["training_seconds"],
        }  # fmt: skip
        total = round(card["training_seconds"] + seconds, 1)
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        return {**card, "training_seconds": total, "date": date, "fine_tuned": found}


def digest_of(path: Path) -> str:
    """Sixteen digits of what a file holds."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def summary(path: Path, run: str) -> dict[str, Any]:
    """What a folder says: kernels in all, of this run and learned from; statuses; the card's facts; and `over_fastest`."""
    rows = read_rows(path / MEASURED)
    card = read_json(path / CARD, finite=False) if (path / CARD).exists() else {}
    told = card.get("fine_tuned", {})
    return {
        "measured": len(rows), "this_run": sum(row.get("run") == run for row in rows),
        "statuses": dict(Counter(row["status"] for row in rows)), "operators": len({row["operator"] for row in rows}),
        "learned_from": told.get("measurements", 0), "learning_s": told.get("seconds", 0.0), "from": told.get("from", ""),
        "hardware": told.get("hardware", ""), "trained_for": told.get("trained_for", ""),
        "other_rules": told.get("other_rules", []), "over_fastest": over_fastest(rows),
    }  # fmt: skip


def over_fastest(rows: list[dict]) -> list[float]:
    """Of every eighth of the kernels, in the order of arrival: their time over that of the fastest of their operator.

    Geometric means of the kernels that ran; the fastest is that of all eighths, so a policy that learns comes down to 1.
    """
    ran = [(row["operator"], float(row["seconds"])) for row in rows if row["seconds"] is not None]
    fastest: dict[str, float] = {}
    for operator, seconds in ran:
        fastest[operator] = min(seconds, fastest.get(operator, math.inf))
    logs = np.array([math.log(seconds / fastest[operator]) for operator, seconds in ran])
    return [float(np.exp(part.mean())) for part in np.array_split(logs, PARTS)] if len(logs) >= PARTS else []
