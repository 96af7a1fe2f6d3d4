"""What the model said of every recorded program when the runs were made (`raw/predicted.jsonl.gz`), before and after the fit.

That file is shipped, since the model changes and the page is of that time. `python -m experiments.evidence --predict` writes it
with today's model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benches.fitting.fit import COEFFICIENTS
from experiments.common.journal import read_rows
from experiments.evidence.facts import RAW, Facts
from experiments.evidence.pack import write_rows
from experiments.evidence.tables import OPERATORS, RECORDED, drift_of
from experiments.tables.recorded import Recorded, tables_of
from gensor_gym.foreign import read_json
from gensor_gym.graph.schedule import Schedule

PREDICTED, FITS = "predicted.jsonl.gz", "fits.json"
DIGITS = 7


@dataclass(frozen=True)
class Told:
    """One operator's table with the model's seconds float64 [N] before and after the fit."""

    recorded: Recorded
    before: np.ndarray
    after: np.ndarray

    @property
    def operator(self) -> str:
        """The operator's text."""
        return self.recorded.operator

    @property
    def part(self) -> str:
        """Part of the split."""
        return self.recorded.part


def predict(folder: Path, facts: Facts) -> None:
    """Write what today's model says, and says after the shipped fit."""
    coefficients = np.array(fit_of(folder, facts)["coefficients"])
    rows = [
        {
            "operator": found.operator, "before": _rounded(found.sample.predicted()),
            "after": _rounded(found.sample.with_values(COEFFICIENTS, coefficients).predicted()),
            "schedules": [str(Schedule(row)) for row in found.rows],
        }
        for found in tables_of(folder / RAW / RECORDED, facts.machine)
    ]  # fmt: skip
    write_rows(folder / RAW / PREDICTED, rows)


def told(folder: Path, facts: Facts) -> list[Told]:
    """Every operator that was recorded, complete or in part; ValueError where a program has no prediction."""
    drift = drift_of(read_rows(folder / RAW / OPERATORS))
    said = {row["operator"]: row for row in read_rows(folder / RAW / PREDICTED)}
    found = []
    for recorded in tables_of(folder / RAW / RECORDED, facts.machine, drift):
        row = said.get(recorded.operator, {"schedules": []})
        place = {schedule: i for i, schedule in enumerate(row["schedules"])}
        texts = [str(Schedule(values)) for values in recorded.rows]
        if missing := [text for text in texts if text not in place]:
            raise ValueError(f"{RAW}/{PREDICTED} lacks {len(missing)} programs of {recorded.operator}, {missing[0]} among them")
        at = [place[text] for text in texts]
        found.append(Told(recorded, np.array(row["before"])[at], np.array(row["after"])[at]))
    return sorted(found, key=lambda one: (not one.recorded.complete, one.operator))


def fit_of(folder: Path, facts: Facts) -> dict[str, Any]:
    """The fit that was made of the recorded rows."""
    return read_json(folder / RAW / FITS)[facts.machine]


def _rounded(seconds: np.ndarray) -> list[float]:
    """Seconds to so many digits."""
    return [float(f"{value:.{DIGITS}g}") for value in seconds]
