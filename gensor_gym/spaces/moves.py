"""Moves in a recorded space: one parameter up or down, and a jump if these moves do not connect the space."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from gensor_gym.spaces.space import TuningSpace

STOP, JUMP, FIRST_MOVE = 0, 1, 2
SPARE_STEPS = 16
"""Steps that an episode has beyond those of a path there and back. Episodes of `Construct-v0` have the same constant."""


class Moves:
    """The actions of a recorded space: `stop`, `jump`, and up and down for each of M parameters, A = 2 + 2M in all.

    M counts the parameters with more than one value. Up (down) leads to the next larger (smaller) value of the parameter for
    which a configuration is recorded with all other values unchanged. If such moves do not connect the space, `jump` leads to the
    nearest configuration (by the sum of index differences) of the next connected part; the first part follows the last. So every
    configuration is reachable from any other.
    """

    def __init__(self, space: TuningSpace) -> None:
        """Build the table of the configurations that up and down lead to, int32 [N, 2M]; -1 if no configuration is recorded."""
        self.space = space
        self.movable = [i for i, p in enumerate(space.parameters) if len(p.values) > 1]
        self.names = ["stop", "jump"]
        self.table = np.full((len(space), 2 * len(self.movable)), -1, dtype=np.int32)
        for column, parameter in enumerate(self.movable):
            name = space.parameters[parameter].name
            self.names += [f"{name} up", f"{name} down"]
            self._connect(2 * column, parameter)
        self.parts, reach = self._explore()
        """Number of the connected part to which each configuration belongs, int32 [N]."""
        self.count = int(self.parts.max()) + 1
        self.horizon = SPARE_STEPS + 2 * reach + self.count - 1
        """Maximum number of steps of an episode: enough to get from any configuration to any other, and some more."""
        always = np.broadcast_to([True, self.count > 1], (len(space), FIRST_MOVE))
        self._masks = np.concatenate([always, self.table >= 0], axis=1)
        for array in (self.table, self.parts, self._masks):  # many environments share the arrays
            array.setflags(write=False)

    def _connect(self, column: int, parameter: int) -> None:
        """Fill the columns of one parameter in the table of successors.

        Successors are neighbours in the order of its values, among configurations whose other values are equal.
        """
        rows = self.space.indices
        others = np.delete(rows, parameter, axis=1)
        group = np.unique(others, axis=0, return_inverse=True)[1].reshape(-1)
        order = np.lexsort((rows[:, parameter], group))
        low, high = order[:-1], order[1:]
        same = group[low] == group[high]
        self.table[low[same], column] = high[same]
        self.table[high[same], column + 1] = low[same]

    def _explore(self) -> tuple[np.ndarray, int]:
        """Return (connected part of each configuration, most steps from the first configuration of a part to another in it)."""
        parts = np.full(len(self.space), -1, dtype=np.int32)
        count, reach = 0, 0
        for start in range(len(self.space)):
            if parts[start] >= 0:
                continue
            front, steps = np.array([start]), 0
            parts[start] = count
            while True:
                near = self.table[front]
                front = np.unique(near[(near >= 0) & (parts[near] < 0)])
                if len(front) == 0:
                    break
                parts[front] = count
                steps += 1
            count, reach = count + 1, max(reach, steps)
        return parts, reach

    @property
    def number(self) -> int:
        """Number of actions."""
        return FIRST_MOVE + self.table.shape[1]

    def mask(self, index: int) -> np.ndarray:
        """Return which actions are legal at a configuration, bool [A]. `stop` always is."""
        return self._masks[index].copy()

    def successor(self, index: int, action: int) -> int:
        """Return the index of the configuration that an action leads to; the same index if the action is illegal or `stop`."""
        if action == JUMP and self.count > 1:
            return self._jump(index)
        if not FIRST_MOVE <= action < self.number:
            return index
        found = int(self.table[index, action - FIRST_MOVE])
        return index if found < 0 else found

    def _jump(self, index: int) -> int:
        """Return the nearest configuration of the next connected part; the first in the file if several are equally near."""
        there = np.flatnonzero(self.parts == (self.parts[index] + 1) % self.count)
        apart = np.abs(self.space.indices[there] - self.space.indices[index]).sum(axis=1)
        return int(there[np.argmin(apart)])


@lru_cache(maxsize=16)
def moves_of(space: TuningSpace) -> Moves:
    """Return the actions of a space. They are built once and shared, because they never change."""
    return Moves(space)
