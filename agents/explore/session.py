"""An immutable position on the construction graph: the programs on the path to a state, and the next moves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from agents.explore.address import NUMBERS, Address
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.actions import NUM_ACTIONS, STOP
from gensor_gym.graph.schedule import Schedule


@dataclass(frozen=True)
class Moves:
    """The K legal moves at a state, without `stop`.

    The moves have actions int64 [K], successor programs `rows` int32 [K, ROW], and the successors' model seconds [K].
    """

    actions: np.ndarray
    rows: np.ndarray
    seconds: np.ndarray


@dataclass(frozen=True)
class Position:
    """A state of the page, with all programs on the path of actions that leads to it."""

    address: Address
    graph: ConstructionGraph
    rows: np.ndarray
    """Programs int32 [1 + steps, ROW] along the path, the starting program first. `stop` repeats the last program."""

    @property
    def steps(self) -> int:
        """Number of actions taken."""
        return len(self.rows) - 1

    @cached_property
    def schedule(self) -> Schedule:
        """The current program."""
        return Schedule(self.rows[-1])

    @cached_property
    def seconds(self) -> np.ndarray:
        """The model's seconds of every program on the path, float64 [1 + steps]."""
        return self.graph.latencies(self.rows)

    @property
    def left(self) -> int:
        """Number of steps left in the episode. With one step left, only `stop` is allowed, as in the environment."""
        return self.graph.horizon - self.steps

    @property
    def finished(self) -> bool:
        """Whether the episode is over."""
        return self.address.actions[-1:] == ("stop",) or self.left < 1

    @cached_property
    def moves(self) -> Moves:
        """All legal moves from this state, with their successor programs and the model's seconds."""
        legal = self.graph.action_mask(self.schedule) if self.left > 1 and not self.finished else np.zeros(NUM_ACTIONS, bool)
        legal[STOP] = False
        actions = np.flatnonzero(legal)
        rows, _ = self.graph.transitions(np.repeat(self.rows[-1:], len(actions), axis=0), actions)
        return Moves(actions, rows, self.graph.latencies(rows))


@lru_cache(maxsize=16)
def graph_of(operator: str, machine: str, space: str) -> ConstructionGraph:
    """Make the construction graph of a task. ValueError names a bad operator, machine or space."""
    return ConstructionGraph(operator, machine, space)


@lru_cache(maxsize=256)
def position_of(address: Address) -> Position:
    """Apply an address's actions and return the position.

    ValueError names an unknown action, or an illegal schedule or action.
    """
    graph = graph_of(*address.task)
    first = Schedule.parse(address.schedule) if address.schedule else graph.initial()
    if not graph.is_legal(first):
        raise ValueError(f"{first} is not legal for {graph.operator} on {graph.hardware.name} in space {graph.space!r}")
    if len(address.actions) > graph.horizon:
        raise ValueError(f"{len(address.actions)} actions: an episode on this task has {graph.horizon} steps at most")
    way = [first]
    for number, name in enumerate(address.actions, start=1):
        only_stop = number == graph.horizon or "stop" in address.actions[: number - 1]
        if name != "stop" and (only_stop or not graph.action_mask(way[-1])[NUMBERS[name]]):
            raise ValueError(f"step {number}, {name}, is illegal at {way[-1]}")
        way.append(graph.transition(way[-1], NUMBERS[name]))
    return Position(replace(address, operator=str(graph.operator)), graph, graph.stack(way))
