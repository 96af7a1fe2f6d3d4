"""Measured programs of operators in a file of JSON lines, from which the model can be scored and fitted on any machine.

For each operator: random legal schedules, which cover the whole space, and programs spread over a construction's ranking, which
cover the relevant part. Random schedules that are far too slow by the model are left out, as are kernels that failed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from omegaconf import DictConfig

from agents.gensor.markov import MarkovExtended
from agents.runs.journal import Journal
from experiments.benches.fitting.fit import Sample
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend
from gensor_gym.measure.measurement import Status
from gensor_gym.operators.types import Operator

SPACE = "extended"
TRIES = 50
"""Largest number of random draws per wanted schedule; then the space counts as exhausted."""


class Timings:
    """Timings in a file, and a backend that measures missing operators as conf/bench/model.yaml says."""

    def __init__(self, path: Path, backend: Backend, hw: Hardware, plan: DictConfig, seed: int) -> None:
        """Read the timings that the file at `path` contains."""
        self.journal, self.backend, self.hardware, self.plan, self.seed = Journal(path, ()), backend, hw, plan, seed
        self.rows: dict[str, list[tuple[str, float]]] = {}
        for row in self.journal:
            self.rows.setdefault(row["operator"], []).append((row["schedule"], row["seconds"]))

    def sample(self, op: Operator) -> Sample:
        """The timed programs of an operator that are legal under the present rules; missing programs are measured first."""
        graph = ConstructionGraph(op, self.hardware, SPACE)
        if str(op) not in self.rows:
            self.rows[str(op)] = self._measure(graph)
        pairs = [(Schedule.parse(text), seconds) for text, seconds in self.rows[str(op)]]
        legal = [(schedule, seconds) for schedule, seconds in pairs if graph.is_legal(schedule)]
        return Sample(graph, graph.stack([s for s, _ in legal]), np.array([seconds for _, seconds in legal]))

    def _measure(self, graph: ConstructionGraph) -> list[tuple[str, float]]:
        """Time programs and write them to the file. A program's time is its fastest sample: the model ignores other load."""
        schedules = list(dict.fromkeys(self._schedules(graph)))
        measured = zip(schedules, self.backend.measure(graph.operator, schedules, self.hardware), strict=True)
        pairs = [(str(s), min(m.samples)) for s, m in measured if m.status is Status.OK]
        self.journal.add(*({"operator": str(graph.operator), "schedule": text, "seconds": s} for text, s in pairs))
        return pairs

    def _schedules(self, graph: ConstructionGraph) -> list[Schedule]:
        """Random schedules, and programs spread over a construction's ranking, more densely towards its top."""
        rng = np.random.default_rng(self.seed)
        found = MarkovExtended().construct(graph, rng).schedules
        places = np.linspace(0.0, 1.0, self.plan.constructed) ** 2 * (len(found) - 1)
        chosen = [found[int(place)] for place in places]
        wanted = self.plan.constructed + self.plan.schedules
        for _ in range(TRIES * self.plan.schedules):
            if len(chosen) >= wanted:
                break
            schedule = graph.random_schedule(rng)
            if graph.latency(schedule) <= self.plan.slowest_s:
                chosen.append(schedule)
        return chosen
