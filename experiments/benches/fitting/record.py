"""The timed programs of an operator with their sources, in a journal, so that a later run does not time them again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.progress import track

from agents.runs.journal import Journal
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend
from gensor_gym.operators.types import Operator

RANDOM, TOP, SPREAD, AGAIN = "random", "top", "spread", "again"
"""Sources of programs, in addition to the names of strategies; `again` marks second timings."""
BATCH = 20


@dataclass(frozen=True)
class Timed:
    """A program and its time, which is infinite if the measurement failed."""

    source: str
    schedule: str
    digest: str
    seconds: float


class Record:
    """The measurements of one operator, in a journal that contains the measurements of all operators."""

    def __init__(self, journal: Journal, op: Operator, hw: Hardware, backend: Backend) -> None:
        """Read the journal's rows of the operator."""
        self.journal, self.op, self.hardware, self.backend = journal, op, hw, backend
        mine = [{name: row[name] for name in row if name != "operator"} for row in journal if row["operator"] == str(op)]
        self.rows = [Timed(**{**row, "seconds": np.inf if row["seconds"] is None else row["seconds"]}) for row in mine]

    def of(self, *sources: str) -> list[Timed]:
        """Measurements from these sources, in the order they were made."""
        return [row for row in self.rows if row.source in sources]

    def digest(self, schedule: Schedule) -> str:
        """Digest of the schedule's kernel."""
        return self.backend.digest(self.op, schedule, self.hardware)

    def first(self) -> list[Timed]:
        """The first measurement of every distinct kernel, without second timings."""
        found: dict[str, Timed] = {}
        for row in self.rows:
            if row.source != AGAIN:
                found.setdefault(row.digest, row)
        return list(found.values())

    def measure(self, source: str, schedules: list[Schedule]) -> None:
        """Time the schedules that have no measurement from this source yet."""
        known = {row.schedule for row in self.of(source)}
        fresh = [schedule for schedule in schedules if str(schedule) not in known]
        batches = [fresh[i : i + BATCH] for i in range(0, len(fresh), BATCH)]
        for batch in track(batches, f"{source} of {self.op}", console=Console(stderr=True)):
            for schedule, got in zip(batch, self.backend.stream(self.op, batch, self.hardware), strict=True):
                self.add(Timed(source, str(schedule), got.digest, got.seconds))

    def add(self, row: Timed) -> None:
        """Append a measurement to the rows and the journal."""
        self.rows.append(row)
        seconds = row.seconds if np.isfinite(row.seconds) else None
        self.journal.add({"operator": str(self.op), **row.__dict__, "seconds": seconds})
