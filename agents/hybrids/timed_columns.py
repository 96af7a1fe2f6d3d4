"""Train a policy that writes programs by columns (tiles of an axis, or a knob) on kernel times.

Times are recorded in Measured v1 if possible, otherwise predicted by corrections.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from agents.columns.choices import Choices
from agents.columns.demonstrations import WITHIN
from agents.columns.learner import ColumnLearner
from agents.hybrids.correction import Correction, load_correction
from agents.hybrids.program_features import features_of
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.coordinates import opened
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import ROW
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.records import measured
from gensor_gym.operators.types import Operator


@dataclass(frozen=True)
class Recorded:
    """The successful recorded programs of one operator in Measured v1, with their times."""

    rows: np.ndarray
    """The programs, encoded as rows int32 [P, ROW], with a tile for every memory level."""
    seconds: np.ndarray
    """Seconds of the programs' quietest samples, float64 [P]."""


_NOTHING = Recorded(np.empty((0, ROW), dtype=np.int32), np.empty(0))


def tasks(machine: str, space: str, unrecorded: Sequence[Operator] = ()) -> list[ConstructionGraph]:
    """Make the training graphs for `machine`: its operators in part `train` of Measured v1, and the operators `unrecorded`."""
    hw = measured.here(machine)
    of: list[str | Operator] = [*recorded(machine, space), *unrecorded]
    return [ConstructionGraph(op, hw, space) for op in of]


@cache
def recorded(machine: str, space: str) -> dict[str, Recorded]:
    """Return the recorded programs of each operator in a machine's part `train` of Measured v1, by the operator's text."""
    table, hw = measured.load(machine, "train"), measured.here(machine)
    ran = table[table.status == Status.OK.value].groupby("operator", observed=True)
    return {str(text): _recorded(ConstructionGraph(str(text), hw, space), of) for text, of in ran}


def _recorded(graph: ConstructionGraph, of: Any) -> Recorded:
    rows = graph.stack([Schedule.parse(schedule) for schedule in of.schedule])
    return Recorded(opened(rows, graph.tables.ints), of.quiet.to_numpy(np.float64))


class Times:
    """Kernel times of one task's programs: recorded if possible, otherwise predicted by corrections."""

    def __init__(self, choices: Choices, known: Recorded, corrections: Sequence[Correction]) -> None:
        """Prepare predictions; each correction is scaled to the recorded programs `known`, if there are any."""
        self.choices, self.corrections = choices, corrections
        self.known = {row.tobytes(): float(value) for row, value in zip(known.rows, known.seconds, strict=True)}
        self._factors = np.zeros(len(corrections))
        if len(known.seconds):
            self._factors = np.log(known.seconds).mean() - self._logs(known.rows).mean(axis=1)

    def _logs(self, rows: np.ndarray) -> np.ndarray:
        """Predict the log seconds float64 [corrections, B] of legal encoded programs by each correction, up to a constant."""
        features = features_of(self.choices.graph, rows)
        model = np.log(self.choices.graph.latencies(rows))
        return np.array([model + correction.log_ratio(features) for correction in self.corrections])

    def seconds(self, chosen: np.ndarray) -> np.ndarray:
        """Return the seconds float64 [N] of programs with choices int64 [N, K], one per column; infinite if illegal.

        A recorded program has its recorded time. For others, one standard deviation over the corrections is added to the mean of
        their logarithms, because a policy finds the programs on which corrections are least certain.
        """
        rows = self.choices.rows(chosen)
        found, legal = np.full(len(rows), np.inf), self.choices.graph.fits(rows)
        if legal.any():
            logs = self._logs(rows[legal]) + self._factors[:, None]
            found[legal] = np.exp(logs.mean(axis=0) + logs.std(axis=0))
        for place in np.flatnonzero(legal):
            found[place] = self.known.get(rows[place].tobytes(), found[place])
        return found


def fast(choices: Choices, known: Recorded) -> np.ndarray:
    """Return the choices int64 [F, K] of the recorded programs within a factor (`WITHIN`) of the fastest time."""
    rows = known.rows[known.seconds <= WITHIN * known.seconds.min()]
    vectors = [vector for row in rows if (vector := choices.vector_of(row)) is not None]
    return np.array(vectors, dtype=np.int64).reshape(-1, len(choices.counts))


class TimedColumnLearner(ColumnLearner):
    """A `ColumnLearner` that ranks programs by kernel times on a machine of Measured v1.

    Its settings are the machine, `measured`, and folders of corrections learned from that machine, `corrections`. Without
    corrections the analytic model ranks. Demonstrations are the fastest recorded programs, or without recordings those of the
    model (`demonstrated`).
    """

    def __init__(self, settings: Mapping[str, Any], graphs: Sequence[ConstructionGraph], steps: int, seed: int) -> None:
        super().__init__(settings, graphs, steps, seed)
        self._corrections = [load_correction(folder) for folder in settings.get("corrections") or ()]
        self._times: dict[Choices, Times] = {}
        self._fast: dict[Choices, np.ndarray] = {}

    def _recorded(self, choices: Choices) -> Recorded | None:
        return recorded(self.settings["measured"], choices.graph.space).get(str(choices.graph.operator))

    def seconds(self, choices: Choices, chosen: np.ndarray) -> np.ndarray:
        """Return the kernel times of a task's programs, see `Times.seconds`; without corrections, those of the model."""
        if not self._corrections:
            return super().seconds(choices, chosen)
        if choices not in self._times:
            self._times[choices] = Times(choices, self._recorded(choices) or _NOTHING, self._corrections)
        return self._times[choices].seconds(chosen)

    def demonstrations(self, choices: Choices) -> np.ndarray:
        """Return the choices of a task's fastest known programs, which may replace drawn programs."""
        if choices not in self._fast:
            known = self._recorded(choices)
            self._fast[choices] = fast(choices, known) if known else super().demonstrations(choices)
        return self._fast[choices]
