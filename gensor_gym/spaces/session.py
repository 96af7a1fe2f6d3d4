"""Search over a recorded space with strategies that also search construction graphs: graph, backend and session of the space."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.session import Budget, SearchSession, TraceRow
from gensor_gym.spaces.moves import STOP, moves_of
from gensor_gym.spaces.space import TuningSpace


@dataclass(frozen=True)
class Configuration:
    """A configuration of a space, in the role of a schedule."""

    index: int
    text: str

    def __str__(self) -> str:
        return self.text


class TuningGraph:
    """A `SearchGraph` of configurations. Rows are indices of values, int32 [B, P]."""

    def __init__(self, space: TuningSpace) -> None:
        """Get the moves of a space, which all its graphs share."""
        self.space = space
        self.moves = moves_of(space)

    def schedule(self, row: np.ndarray) -> Configuration:
        """The configuration of a row int [P]. KeyError if none is recorded."""
        return self.at(self.space.place(row))

    def at(self, index: int) -> Configuration:
        """The configuration with this index in the file."""
        values = self.space.configuration(index)
        return Configuration(index, ", ".join(f"{name}={value}" for name, value in values.items()))

    def initial(self) -> Configuration:
        """The first configuration of the file."""
        return self.at(0)

    def action_mask(self, configuration: Configuration) -> np.ndarray:
        """Whether each action is legal, bool [A]."""
        return self.moves.mask(configuration.index)

    def transition(self, configuration: Configuration, action: int) -> Configuration:
        """The successor. An illegal action, or `stop`, returns the configuration unchanged."""
        return self.at(self.moves.successor(configuration.index, action))

    def successors(self, configuration: Configuration) -> dict[int, Configuration]:
        """Successors by action, for all legal actions except `stop`."""
        legal = np.flatnonzero(self.action_mask(configuration))
        return {int(a): self.transition(configuration, int(a)) for a in legal if a != STOP}

    def random_schedule(
        self, rng: np.random.Generator, steps: int | None = None, start: Configuration | None = None
    ) -> Configuration:
        """A configuration drawn uniformly; with `steps`, the end of that many random moves from `start` (or from the first)."""
        if steps is None:
            return self.at(int(rng.integers(len(self.space))))
        node = start or self.initial()
        for _ in range(steps):
            near = list(self.successors(node).values())
            node = near[int(rng.integers(len(near)))] if near else node
        return node

    def enumerate(self) -> Iterator[np.ndarray]:
        """Yield all configurations in the order of the file, as rows int [N, P] in one batch."""
        yield self.space.indices


class TuningBackend:
    """A backend that answers from the recording. The conditions have the recorded cost of a trial as `trial_seconds`."""

    stored = False

    def __init__(self, space: TuningSpace, timing: str = "reported") -> None:
        """`timing` is a name in `TIMINGS`. ValueError for any other."""
        self.space, self.timing = space, timing
        self._seconds = space.seconds(timing)

    def device(self, hw: object) -> str:
        """Name of the device on which the space was recorded."""
        return self.space.device

    def digest(self, op: object, schedule: Configuration, hw: object) -> str:
        """Index of the configuration as text: every configuration is a separate program."""
        return str(schedule.index)

    def stream(self, op: object, schedules: Sequence[Configuration], hw: object) -> Iterator[Measurement]:
        """Yield the recorded result of each configuration. `samples` has one time, by the chosen timing."""
        for schedule in schedules:
            i = schedule.index
            samples = (float(self._seconds[i]),) if self.space.ok[i] else ()
            conditions: dict[str, object] = {"trial_seconds": float(self.space.charges[i]), "device": self.space.device}
            yield Measurement(self.space.status[i], samples, conditions, self.space.errors[i], str(i))


@dataclass(frozen=True)
class TuningTask:
    """The task of a recorded space: names of its kernel and its device."""

    operator: str
    hardware: str


class TuningSession(SearchSession[Configuration]):
    """A session over a recorded space, for strategies without a model.

    Its clock counts only recorded time: a trial takes its recorded seconds, and everything else takes none.
    """

    graph: TuningGraph
    backend: TuningBackend

    def __init__(
        self, space: TuningSpace, budget: Budget, timing: str = "reported", on_trial: Callable[[TraceRow], None] | None = None
    ) -> None:
        """ValueError for an unknown timing, or for a space in which no configuration succeeded."""
        self.optimum = space.best(timing)
        task = TuningTask(space.kernel, space.device)
        super().__init__(task, TuningGraph(space), TuningBackend(space, timing), budget, on_trial=on_trial)

    @property
    def elapsed(self) -> float:
        """Recorded seconds of the trials so far."""
        return self._credited

    def predict(self, schedules: object) -> NoReturn:
        """Raise ValueError: a recorded space has no model."""
        raise ValueError(f"no model predicts {self.graph.space.source}: a recorded space is for strategies that measure alone")
