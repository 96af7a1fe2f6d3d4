"""First half of lowering: a schedule's row of integers becomes a frozen `Program`.

A program has tile sizes in the order of the operator's axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.schedule import Schedule, make_row
from gensor_gym.graph.structure import LEVELS
from gensor_gym.graph.tables.layout import MAX_AXES, MAX_LEVELS, slot_of
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Access, Operator


@dataclass(frozen=True)
class Box:
    """The bounding box of a tile's accesses to one tensor: `shape[d]` elements along dimension d of the tensor's view."""

    access: Access
    shape: tuple[int, ...]  # [D]

    @property
    def size(self) -> int:
        """Number of elements in the box."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Program:
    """A schedule of an operator on a machine, with tile sizes in the order of the operator's axes.

    tiles[0] is the register tile, tiles[-1] the outermost tile (block tile on a GPU, task tile on a CPU). Along a spatial
    axis of a GPU block, tile[1] = vthread x threads x inner, where inner = tile[0] / vthread. Element i of virtual thread v
    of thread t has the offset v * threads * inner + t * inner + i in the block tile. A tile may extend past the axis's end.
    """

    operator: Operator
    hardware: Hardware
    tiles: tuple[tuple[int, ...], ...]  # [L, A]
    vthread: tuple[int, ...]  # [A]
    knobs: tuple[tuple[str, int], ...]

    def knob(self, name: str) -> int:
        """Return the value of the knob `name`."""
        return dict(self.knobs)[name]

    def with_knobs(self, **values: int) -> Program:
        """Return the program with other values of some knobs."""
        return replace(self, knobs=tuple((name, values.get(name, value)) for name, value in self.knobs))

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of outermost tiles along every axis, [A]; along a reduce axis they are steps of the outer reduction loop."""
        return tuple(-(-n // t) for n, t in zip(self.operator.extents, self.tiles[-1], strict=True))

    @property
    def threads(self) -> tuple[int, ...]:
        """Number of GPU threads of a block along every axis, [A]; 1 along reduce axes."""
        spatial = set(self.operator.spatial)
        pairs = enumerate(zip(self.tiles[0], self.tiles[1], strict=True))
        return tuple(outer // inner if a in spatial else 1 for a, (inner, outer) in pairs)

    def box(self, access: Access, level: int) -> Box:
        """Return the bounding box of the elements of one tensor that a tile accesses.

        `level` is the index of the tile in `tiles`.
        """
        tile, rows = self.tiles[level], access.coefficients
        return Box(access, tuple(1 + sum(c * (t - 1) for c, t in zip(row, tile, strict=True)) for row in rows))


def lower(operator: Operator, schedule: Schedule, hardware: Hardware) -> Program:
    """Lower a schedule to a program.

    Tile sizes are put into the order of the operator's axes, and indices of knobs become the knobs' values.
    """
    spatial = len(operator.spatial)
    slots = [slot_of(a, spatial) for a in range(len(operator.axes))]
    tiles = tuple(tuple(int(schedule.tile[level, s]) for s in slots) for level in range(LEVELS[hardware.kind]))
    vthread = tuple(int(schedule.vthread[s]) for s in slots)
    knobs = tuple((knob.name, schedule.knob(knob.name)) for knob in KNOBS)
    return Program(operator, hardware, tiles, vthread, knobs)


def row_of(program: Program) -> np.ndarray:
    """Return the row of the schedule that a program was lowered from, with 0 as the level under construction.

    `graph.resources` takes such rows.
    """
    slots = [slot_of(a, len(program.operator.spatial)) for a in range(len(program.operator.axes))]
    rows = [[1] * MAX_AXES for _ in range(MAX_LEVELS + 1)]
    levels = (*program.tiles, *(program.tiles[-1],) * (MAX_LEVELS - len(program.tiles)))
    for row, values in zip(rows, (*levels, program.vthread), strict=True):
        for slot, value in zip(slots, values, strict=True):
            row[slot] = value
    return make_row(rows[:-1], rows[-1], 0, dict(program.knobs))
