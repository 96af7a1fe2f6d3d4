"""Search over a recorded space with the strategies that search construction graphs: its graph, backend and session."""

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
    """A configuration of a recorded space. It takes the place that a schedule has in a construction graph."""

    index: int
    text: str

    def __str__(self) -> str:
        return self.text


class TuningGraph:
    """Graph of the configurations of a recorded space, for strategies that search construction graphs.

    A configuration's row has the index of each of its P parameter values, int32 [P].
    """

    def __init__(self, space: TuningSpace) -> None:
        """Take the actions of the space (`moves_of`), which all its graphs share."""
        self.space = space
        self.moves = moves_of(space)

    def schedule(self, row: np.ndarray) -> Configuration:
        """Return the configuration of a row int [P]. KeyError if it is not recorded."""
        return self.at(self.space.place(row))

    def at(self, index: int) -> Configuration:
        """Return the configuration with this index in the file."""
        values = self.space.configuration(index)
        return Configuration(index, ", ".join(f"{name}={value}" for name, value in values.items()))

    def initial(self) -> Configuration:
        """The first configuration of the file."""
        return self.at(0)

    def action_mask(self, configuration: Configuration) -> np.ndarray:
        """Return which actions are legal at a configuration, bool [A]."""
        return self.moves.mask(configuration.index)

    def transition(self, configuration: Configuration, action: int) -> Configuration:
        """Return the configuration that an action leads to. An illegal action, or `stop`, returns it unchanged."""
        return self.at(self.moves.successor(configuration.index, action))

    def successors(self, configuration: Configuration) -> dict[int, Configuration]:
        """Return {action: configuration that it leads to} for all legal actions except `stop`."""
        legal = np.flatnonzero(self.action_mask(configuration))
        return {int(a): self.transition(configuration, int(a)) for a in legal if a != STOP}

    def random_schedule(
        self, rng: np.random.Generator, steps: int | None = None, start: Configuration | None = None
    ) -> Configuration:
        """Draw a configuration uniformly.

        With `steps`, return instead the end of that many random moves from `start`, or from the first configuration of the file.
        """
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
    """Backend that measures a configuration by looking up its recorded result.

    The measurement's conditions contain the recorded seconds that the trial took, as `trial_seconds`.
    """

    stored = False

    def __init__(self, space: TuningSpace, timing: str = "reported") -> None:
        """Choose which recorded time is returned: `timing` is one of `TIMINGS`. ValueError for any other."""
        self.space, self.timing = space, timing
        self._seconds = space.seconds(timing)

    def device(self, hw: object) -> str:
        """Return the name of the device on which the space was recorded."""
        return self.space.device

    def digest(self, op: object, schedule: Configuration, hw: object) -> str:
        """Return the index of the configuration as text, because every configuration is a separate program."""
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
    """Task of a recorded space: the names of its kernel and of the device on which it was recorded."""

    operator: str
    hardware: str


class TuningSession(SearchSession[Configuration]):
    """Search session over a recorded space, for strategies that need no model.

    Its clock counts only recorded time: a trial takes its recorded seconds, and everything else takes none.
    """

    graph: TuningGraph
    backend: TuningBackend

    def __init__(
        self, space: TuningSpace, budget: Budget, timing: str = "reported", on_trial: Callable[[TraceRow], None] | None = None
    ) -> None:
        """Start a search over the space. ValueError for an unknown timing, or if no configuration of the space succeeded."""
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
