"""Searching a recorded space with the strategies of constructions: its graph, its backend, its session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.session import Budget, Session, Task, TraceRow
from gensor_gym.spaces.moves import STOP, moves_of
from gensor_gym.spaces.space import TuningSpace


@dataclass(frozen=True)
class Configuration:
    """A configuration of a space, where a search over constructions has a schedule."""

    index: int
    text: str

    def __str__(self) -> str:
        return self.text


class TuningGraph:
    """The part of `ConstructionGraph` that searches by measurement use; rows are places of values, int32 [B, P]."""

    def __init__(self, space: TuningSpace) -> None:
        """The moves of a space."""
        self.space = space
        self.moves = moves_of(space)

    def schedule(self, row: np.ndarray) -> Configuration:
        """The configuration of a row; KeyError where none is recorded."""
        return self.at(self.space.place(row))

    def at(self, index: int) -> Configuration:
        """The configuration at a place of the file."""
        values = self.space.configuration(index)
        return Configuration(index, ", ".join(f"{name}={value}" for name, value in values.items()))

    def initial(self) -> Configuration:
        """The first of the file."""
        return self.at(0)

    def action_mask(self, configuration: Configuration) -> np.ndarray:
        """Legal actions, bool [A]."""
        return self.moves.mask(configuration.index)

    def transition(self, configuration: Configuration, action: int) -> Configuration:
        """The successor; an illegal action, or `stop`, returns the configuration unchanged."""
        return self.at(self.moves.successor(configuration.index, action))

    def successors(self, configuration: Configuration) -> dict[int, Configuration]:
        """Legal actions except `stop`, each with the configuration it leads to."""
        legal = np.flatnonzero(self.action_mask(configuration))
        return {int(a): self.transition(configuration, int(a)) for a in legal if a != STOP}

    def random_schedule(self, rng: np.random.Generator) -> Configuration:
        """Any configuration, each equally likely."""
        return self.at(int(rng.integers(len(self.space))))

    def enumerate(self, batch: int = 65536) -> Iterator[np.ndarray]:
        """All configurations in the order of the file, in batches of rows."""
        for begin in range(0, len(self.space), batch):
            yield self.space.indices[begin : begin + batch]

    def latencies(self, rows: np.ndarray) -> np.ndarray:
        """No model predicts a recorded space: 0 for all, float64 [B]."""
        return np.zeros(len(rows))

    def stack(self, configurations: Sequence[Configuration]) -> np.ndarray:
        """Configurations as rows."""
        return self.space.indices[[c.index for c in configurations]]


class TuningBackend:
    """Answers with what is recorded. The seconds that a trial took then stand in its conditions as `trial_seconds`."""

    name = "tuning"
    stored = False

    def __init__(self, space: TuningSpace, timing: str = "reported") -> None:
        """ValueError names the timings there are."""
        self.space, self.timing = space, timing
        self._seconds = space.seconds(timing)

    def device(self, hw: object) -> str:
        """Where the space was recorded."""
        return self.space.device

    def digest(self, op: object, schedule: Configuration, hw: object) -> str:
        """Every configuration is a program of its own."""
        return str(schedule.index)

    def measure(self, op: object, schedules: Sequence[Configuration], hw: object) -> list[Measurement]:
        """What is recorded of each; `samples` holds the one time of the timing chosen."""
        return list(self.stream(op, schedules, hw))

    def stream(self, op: object, schedules: Sequence[Configuration], hw: object) -> Iterator[Measurement]:
        """As `measure`, one after the other."""
        for schedule in schedules:
            i = schedule.index
            samples = (float(self._seconds[i]),) if self.space.ok[i] else ()
            conditions: dict[str, object] = {"trial_seconds": float(self.space.charges[i]), "device": self.space.device}
            yield Measurement(self.space.status[i], samples, conditions, self.space.errors[i], str(i))

    def close(self) -> None:
        """Nothing to end."""


@dataclass(frozen=True)
class TuningTask:
    """What a session asks of a task, for a recorded space."""

    operator: str
    hardware: str
    backend: TuningBackend
    space: str

    def graph(self) -> TuningGraph:
        """The graph of moves."""
        return TuningGraph(self.backend.space)


class TuningSession(Session):
    """A session over a recorded space: strategies that use nothing of constructions but the graph's face run on it.

    Its clock is the recording's: a trial takes the seconds it took then, and nothing else takes any.
    """

    def __init__(
        self, space: TuningSpace, budget: Budget, timing: str = "reported", on_trial: Callable[[TraceRow], None] | None = None
    ) -> None:
        """ValueError for an unknown timing, or a space in which nothing ran well."""
        self.optimum = space.best(timing)
        task = TuningTask(space.kernel, space.device, TuningBackend(space, timing), "tuning")
        # It has the attributes of a Task that a session reads, of other types.
        super().__init__(cast(Task, task), budget, on_trial=on_trial)

    @property
    def elapsed(self) -> float:
        """Recorded seconds of the trials so far."""
        return self._credited
