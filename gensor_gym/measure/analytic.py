"""The `analytic` backend: returns the latency that a model predicts, as a measurement with one sample."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import LEVEL
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.legality import graph_of
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.operators.types import Operator


def program_key(schedule: Schedule | GirSchedule) -> bytes:
    """Return bytes that identify a schedule's program. Two schedules with equal bytes are the same program.

    The bytes are the schedule's row, with the level under construction set to 0: levels that the construction has not reached
    contain the tiles of the level below, so two schedules that differ only in that level are one program. A fused operator's
    schedule, which has no levels, has its own key.
    """
    if not isinstance(schedule, Schedule):
        return schedule.key
    row = schedule.row.copy()
    row[LEVEL] = 0
    return row.tobytes()


def program_digest(op: Operator | Dataflow, schedule: Schedule | GirSchedule, hw: Hardware) -> str:
    """Return a hexadecimal digest that identifies a program of an operator on a hardware. No code is generated."""
    return hashlib.sha256("\0".join([str(op), hw.name, hw.arch, program_key(schedule).hex()]).encode()).hexdigest()


class AnalyticBackend:
    """Backend that measures with the analytic model, on any hardware. No kernel runs."""

    name = "analytic"
    stored = False

    def device(self, hw: Hardware) -> str:
        """Return the name of the hardware's analytic model. For `host` it contains the digest of the measured rates."""
        return f"model of {hw.name}" + (f" ({hw.digest})" if hw.name == "host" else "")

    def digest(self, op: Operator | Dataflow, schedule: Schedule | GirSchedule, hw: Hardware) -> str:
        """Return the digest of the program; see `program_digest`."""
        return program_digest(op, schedule, hw)

    def measure(self, op: Operator | Dataflow, schedules: Sequence[Any], hw: Hardware) -> list[Measurement]:
        """Return one measurement for each schedule: the model's latency, or status ILLEGAL beyond the hardware's limits."""
        return list(self.stream(op, schedules, hw))

    def stream(self, op: Operator | Dataflow, schedules: Sequence[Any], hw: Hardware) -> Iterator[Measurement]:
        """Yield the measurements of `measure` one at a time."""
        graph = graph_of(op, hw)
        for schedule in schedules:
            digest = self.digest(op, schedule, hw)
            if graph.is_legal(schedule):
                conditions: dict[str, object] = {"device": self.device(hw), "model": True}
                yield Measurement(Status.OK, (self.seconds(graph, schedule),), conditions, "", digest)
            else:
                yield Measurement(Status.ILLEGAL, error=f"outside the limits of {hw.name}: {schedule!r}", digest=digest)

    def seconds(self, graph: Any, schedule: Any) -> float:
        """Return the predicted latency of a legal schedule, in seconds."""
        return graph.latency(schedule)

    def close(self) -> None:
        """Do nothing, because no processes need to end."""


class ModelBackend(AnalyticBackend):
    """Backend that predicts latencies with a model of the user's: a function of (graph, schedule) that returns seconds."""

    def __init__(self, name: str, model: Callable[[Any, Any], float]) -> None:
        self.name, self._model = name, model

    def seconds(self, graph: Any, schedule: Any) -> float:
        """Return the predicted latency of a legal schedule, in seconds."""
        return self._model(graph, schedule)
