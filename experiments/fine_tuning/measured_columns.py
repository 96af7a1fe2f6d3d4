"""Learning from measurements for a policy that writes programs column by column: judges rank programs, a learner uses them.

The policy continues its training by the rank of its programs among those of their task. A measured kernel counts with its time,
others with the model's, corrected by measurements of their structure (`agents.core.feedback`, as `markov_ext` predicts). The
fastest measured kernels of a task are added to the drawn programs, so that the policy learns from them however improbable they
were (self-imitation, Oh et al. 2018). Measured are the policy's draws for an operator that are predicted to be the fastest, some
of them from warmer draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from agents.columns.choices import Choices
from agents.columns.given import Given
from agents.columns.learner import ColumnLearner
from agents.core.feedback import Feedback
from agents.core.ranking import diverse, ranked
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule

PER_REGISTER_TILE = 2
"""Kernels of one register tile that are measured at a time before others, as strategies do."""
Line = Mapping[str, Any]
"""A kernel measured: operator, schedule, seconds, which are None if it failed, and more."""


class Judge:
    """Times of programs of one operator: measured, or else predicted."""

    def __init__(self, choices: Choices, lines: Sequence[Line] = ()) -> None:
        """Start with the operator's measurements."""
        self.choices, self.feedback = choices, Feedback()
        self.known: dict[Schedule, float] = {}
        """Measured seconds, infinite if a kernel failed."""
        self.asked: set[Schedule] = set()
        """Requested programs that are not measured yet."""
        for line in lines:
            self.keep(Schedule.parse(line["schedule"]), line)

    @property
    def graph(self) -> ConstructionGraph:
        """Graph of the operator."""
        return self.choices.graph

    def seconds(self, rows: np.ndarray) -> np.ndarray:
        """Seconds of programs int32 [N, ROW], float64 [N]; infinite if illegal or failed."""
        found = self.graph.latencies(rows)
        if not self.known:
            return found
        for i in np.flatnonzero(np.isfinite(found)):
            schedule = Schedule(rows[i])
            measured = self.known.get(schedule)
            found[i] = self.feedback.corrected(schedule, float(found[i])) if measured is None else measured
        return found

    def wanted(self, rows: np.ndarray, count: int) -> list[Schedule]:
        """The `count` programs of int32 [N, ROW] that are predicted to be the fastest, of several register tiles.

        Measured and pending ones are excluded.
        """
        seconds = self.seconds(rows)
        fitting = np.isfinite(seconds)
        order = ranked(rows[fitting], seconds[fitting], self.graph)[0]
        fresh = tuple(s for s in order if s not in self.known and s not in self.asked)
        return diverse(fresh, PER_REGISTER_TILE)[:count]

    def keep(self, schedule: Schedule, line: Line) -> None:
        """Know a kernel."""
        measured = math.inf if line["seconds"] is None else float(line["seconds"])
        self.asked.discard(schedule)
        self.known[schedule] = measured
        self.feedback.add(schedule, self.graph.latency(schedule), measured)

    def fastest(self, count: int) -> np.ndarray:
        """Choices int64 [at most `count`, K] of the kernels that ran, fastest first."""
        ran = sorted((s for s, seconds in self.known.items() if math.isfinite(seconds)), key=self.known.__getitem__)
        vectors = [vector for s in ran[:count] if (vector := self.choices.vector(s)) is not None]
        return np.array(vectors, dtype=np.int64).reshape(-1, len(self.choices.counts))


class MeasuredLearner(ColumnLearner):
    """A learner whose programs are ranked by judges.

    Settings in addition to those of `ColumnLearner`: kernels, warm_kernels, temperature, remembered, updates
    (conf/fine_tune.yaml).
    """

    def __init__(
        self, settings: Mapping[str, Any], graphs: Sequence[ConstructionGraph], lines: Sequence[Line], seed: int
    ) -> None:
        """A learner with its own network; `lines` are earlier measurements. Measurements end it, not a number of steps."""
        check(settings)
        constant = {f"final_{name}": settings[name] for name in ("learning_rate", "entropy")}
        super().__init__({**settings, **constant}, graphs, 1, seed)
        mine: dict[str, list[Line]] = {}
        for line in lines:
            mine.setdefault(line["operator"], []).append(line)
        self.judges = {choices: Judge(choices, mine.get(str(choices.graph.operator), ())) for choices in self.choices}
        warm = settings["warm_kernels"]
        self.turns = ((settings["kernels"] - warm, 1.0), (warm, float(settings["temperature"])))
        """(kernels that are measured, temperature that they are drawn at)."""

    def seconds(self, choices: Choices, chosen: np.ndarray) -> np.ndarray:
        """Seconds by the judge of the task."""
        return self.judges[choices].seconds(choices.rows(chosen))

    def given(self, choices: Choices) -> Given:
        """The fastest kernels that were measured."""
        return Given(self.judges[choices].fastest(self.settings["remembered"]))

    def next_task(self) -> Choices:
        """Task of the next measured kernels: any."""
        return self.choices[int(self.rng.integers(len(self.choices)))]

    def drawn(self, choices: Choices, temperature: float) -> np.ndarray:
        """Programs of the policy for a task, legal or not, int32 [programs, ROW]."""
        draws = self.rng.random((self.settings["programs"], len(choices.counts)))
        with torch.no_grad():
            chosen, _, _ = self.network(choices, draws, temperature)
        return choices.rows(chosen)

    def learn(self) -> None:
        """The batches that are learned from after `kernels` measurements."""
        self.rewards += [self.advance() for _ in range(self.settings["updates"])]


def check(settings: Mapping[str, Any]) -> None:
    """ValueError names a setting that is out of range; those of any training of columns are left to the learner."""
    least = {"kernels": 1, "updates": 1, "warm_kernels": 0, "remembered": 0}
    most = {"warm_kernels": settings["kernels"], "remembered": settings["programs"] // 2}
    for name, low in least.items():
        if not low <= settings[name] <= most.get(name, math.inf):
            bound = f"{low} to {most[name]}" if name in most else f"{low} or more"
            raise ValueError(f"columns.{name} is {settings[name]}; expected {bound}")
    if not settings["temperature"] > 0.0:
        raise ValueError(f"columns.temperature is {settings['temperature']}; expected above 0")
