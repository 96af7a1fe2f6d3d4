"""A shortest sequence of actions from the unscheduled program to a wanted program.

It comes from a best-first search (A*) over the graph's own actions. The bound on the remaining steps adds up the axes: without
the hardware's limits every axis changes independently, level by level. The bound is exact if no limit intervenes, and then the
search makes no detour. On tensor cores tiles grow in whole fragments, which the bound ignores: the path is legal there, but a
shorter path may exist. The search is ours; none of the papers needs one.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.actions import STOP, TILE_DOWN, TILE_UP, VTHREAD_UP
from gensor_gym.graph.coordinates import usable_values
from gensor_gym.graph.ladder import divisors
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import KNOB, LEVEL, MAX_AXES, MAX_LEVELS, NUM_KNOBS, TILE, VTHREAD
from gensor_gym.graph.tables.tables import ALLOWED

MOST_STATES = 50_000
"""Number of states after which the search gives up."""
_FAR = 10_000
"""Number of steps that stands for an unreachable goal along one axis."""


def actions_to(graph: ConstructionGraph, schedule: Schedule, most: int = MOST_STATES) -> list[int]:
    """Return the shortest list of actions, without `stop`, that leads from the unscheduled program to a schedule's program.

    The path does not visit outer levels whose tiles equal those of the level below, because the program is the same.
    ValueError for a schedule that is not legal, or if no path was found among `most` states.
    """
    if not graph.is_legal(schedule):
        raise ValueError(f"{schedule!r} is not legal for {graph.operator} in space {graph.space!r}")
    goal = _lowest(schedule.row)
    left = _Left(graph, goal)
    first = graph.initial().row
    came: dict[bytes, tuple[bytes, int]] = {}
    steps = {first.tobytes(): 0}
    queue = [(left.of(first), 0, first.tobytes())]
    while queue:
        _, negative, key = heapq.heappop(queue)
        if -negative > steps[key]:
            continue
        if key == goal.tobytes():
            return _back(came, key)
        if len(steps) > most:
            break
        row = np.frombuffer(key, dtype=np.int32)
        legal = np.flatnonzero(graph.action_masks(row[None])[0])
        legal = legal[legal != STOP]
        rows, _ = graph.transitions(np.repeat(row[None], len(legal), axis=0), legal)
        for action, successor in zip(legal.tolist(), rows, strict=True):
            after, taken = successor.tobytes(), 1 - negative
            distance = left.of(successor)
            if distance < _FAR and taken < steps.get(after, _FAR):
                steps[after], came[after] = taken, (key, action)
                heapq.heappush(queue, (taken + distance, -taken, after))
    raise ValueError(f"no path to {schedule} in space {graph.space!r} among {len(steps)} states of {graph.operator}")


def _beside(ladder: Sequence[int], value: int) -> tuple[int, ...]:
    """Return the values just before and after `value` in a list of sizes, if there are any."""
    place = ladder.index(value)
    return *ladder[max(0, place - 1) : place], *ladder[place + 1 : place + 2]


def _back(came: dict[bytes, tuple[bytes, int]], key: bytes) -> list[int]:
    actions = []
    while key in came:
        key, action = came[key]
        actions.append(action)
    return actions[::-1]


def _lowest(row: np.ndarray) -> np.ndarray:
    """Return the program of `row` as a row with the lowest possible level under construction."""
    row = row.copy()
    tiles = row[TILE:VTHREAD].reshape(MAX_LEVELS, MAX_AXES)
    while row[LEVEL] > 0 and (tiles[row[LEVEL]] == tiles[row[LEVEL] - 1]).all():
        row[LEVEL] -= 1
    return row


class _Left:
    """Computes a lower bound on the number of actions between a state and a goal."""

    def __init__(self, graph: ConstructionGraph, goal: np.ndarray) -> None:
        """Compute, for every axis, the steps to the goal from each (register tile, virtual threads) and from each outer tile."""
        self.graph, self.goal = graph, goal
        self.ints = graph.tables.ints
        self.level = int(goal[LEVEL])
        self.tiles = goal[TILE:VTHREAD].reshape(MAX_LEVELS, MAX_AXES).tolist()
        self.registers = [self._register_steps(axis) for axis in range(MAX_AXES)]
        self.above = [
            [self._level_steps(axis, level, self.tiles[level - 1][axis]) for level in range(1, self.level + 1)]
            for axis in range(MAX_AXES)
        ]
        self.knobs = [usable_values(graph.tables.ints, knob) for knob in range(NUM_KNOBS)]

    def of(self, row: np.ndarray) -> int:
        """Return a lower bound on the steps from a state to the goal.

        It is `_FAR` or more if a completed level differs from the goal's.
        """
        at = row.tolist()
        level = at[LEVEL]
        if level > self.level:
            return _FAR
        steps = self.level - level
        for axis in range(MAX_AXES):
            steps += self._axis(at, axis, level)
        for knob, usable in enumerate(self.knobs):
            here, there = at[KNOB + knob], int(self.goal[KNOB + knob])
            steps += abs(usable.index(here) - usable.index(there)) if here != there else 0
        return steps

    def _axis(self, at: list[int], axis: int, level: int) -> int:
        """Return the steps along one axis: in its virtual threads, at the level under construction, and at later levels."""
        for closed in range(level):
            if at[TILE + closed * MAX_AXES + axis] != self.tiles[closed][axis]:
                return _FAR
        steps = self.registers[axis].get((at[TILE + axis], at[VTHREAD + axis]), _FAR)
        if level == 0:
            return steps + sum(ladder.get(self.tiles[i][axis], _FAR) for i, ladder in enumerate(self.above[axis]))
        steps += self.above[axis][level - 1].get(at[TILE + level * MAX_AXES + axis], _FAR)
        later = self.above[axis][level:]
        return steps + sum(ladder.get(self.tiles[level + i][axis], _FAR) for i, ladder in enumerate(later))

    def _level_steps(self, axis: int, level: int, base: int) -> dict[int, int]:
        """Return {tile size: steps to the goal's size} for an axis at a level above registers."""
        sizes = [size for size in self.graph.tables.ladder(axis) if size % base == 0]
        there = sizes.index(self.tiles[level][axis])
        return {size: abs(place - there) for place, size in enumerate(sizes)}

    def _register_steps(self, axis: int) -> dict[tuple[int, int], int]:
        """Return {(register tile, virtual threads): steps to the goal} for an axis.

        The search starts at the goal, because every action has an inverse.
        """
        frontier = [(self.tiles[0][axis], int(self.goal[VTHREAD + axis]))]
        steps = {frontier[0]: 0}
        while frontier:
            ahead = []
            for tile, threads in frontier:
                for other in self._neighbours(axis, tile, threads):
                    if other not in steps:
                        steps[other] = steps[tile, threads] + 1
                        ahead.append(other)
            frontier = ahead
        return steps

    def _neighbours(self, axis: int, tile: int, threads: int) -> list[tuple[int, int]]:
        """Return the (register tile, virtual threads) one action away, in either direction, without the hardware's limits."""
        found: list[tuple[int, int]] = []
        if self.ints[ALLOWED + TILE_UP + axis] or self.ints[ALLOWED + TILE_DOWN + axis]:
            sizes = [size for size in self.graph.tables.ladder(axis) if size % threads == 0]
            found += [(size, threads) for size in _beside(sizes, tile)]
        if self.ints[ALLOWED + VTHREAD_UP + axis]:
            found += [(tile, n) for n in _beside(divisors(tile), threads)]
        return found
