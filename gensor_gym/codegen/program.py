"""Lowering, first half: a schedule's row becomes a frozen description by operator axis. Arrays end here."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.schedule import Schedule, make_row
from gensor_gym.graph.structure import LEVELS
from gensor_gym.graph.tables.layout import MAX_AXES, MAX_LEVELS, slot_of
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Access, Operator


@dataclass(frozen=True)
class Box:
    """The elements of one tensor that a tile touches: a dense box, `shape[d]` long along each dimension of the view."""

    access: Access
    shape: tuple[int, ...]  # [D]

    @property
    def size(self) -> int:
        """Elements in the box."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Program:
    """A schedule of an operator on a kind of hardware, axes in the operator's order.

    tiles[0] is the register tile, tiles[-1] the outermost one (block tile on a GPU, task tile on a CPU). Along a
    spatial axis of a GPU block: tile[1] = vthread x threads x (tile[0] / vthread); element (v, t, i) of the tile is
    v * threads * inner + t * inner + i, so that virtual threads are strided apart. A tile may overhang the extent.
    """

    operator: Operator
    hardware: Hardware
    tiles: tuple[tuple[int, ...], ...]  # [L, A]
    vthread: tuple[int, ...]  # [A]
    knobs: tuple[tuple[str, int], ...]

    def knob(self, name: str) -> int:
        """Value of a knob."""
        return dict(self.knobs)[name]

    @property
    def grid(self) -> tuple[int, ...]:
        """Outermost tiles along every axis (reduce axes: steps of the outer reduction loop), [A]."""
        return tuple(-(-n // t) for n, t in zip(self.operator.extents, self.tiles[-1], strict=True))

    @property
    def threads(self) -> tuple[int, ...]:
        """GPU threads of a block along every spatial axis, 1 along reduce axes, [A]."""
        spatial = set(self.operator.spatial)
        pairs = enumerate(zip(self.tiles[0], self.tiles[1], strict=True))
        return tuple(outer // inner if a in spatial else 1 for a, (inner, outer) in pairs)

    def box(self, access: Access, level: int) -> Box:
        """Footprint of the tile of `level` in one tensor."""
        tile, rows = self.tiles[level], access.coefficients
        return Box(access, tuple(1 + sum(c * (t - 1) for c, t in zip(row, tile, strict=True)) for row in rows))


def lower(operator: Operator, schedule: Schedule, hardware: Hardware) -> Program:
    """The program of a schedule: slots become axes, knob indices become values."""
    spatial = len(operator.spatial)
    slots = [slot_of(a, spatial) for a in range(len(operator.axes))]
    tiles = tuple(tuple(int(schedule.tile[level, s]) for s in slots) for level in range(LEVELS[hardware.kind]))
    vthread = tuple(int(schedule.vthread[s]) for s in slots)
    knobs = tuple((knob.name, schedule.knob(knob.name)) for knob in KNOBS)
    return Program(operator, hardware, tiles, vthread, knobs)


def row_of(program: Program) -> np.ndarray:
    """The row that a program is lowered from, except for the level under construction; `graph.resources` counts on it."""
    slots = [slot_of(a, len(program.operator.spatial)) for a in range(len(program.operator.axes))]
    rows = [[1] * MAX_AXES for _ in range(MAX_LEVELS + 1)]
    levels = (*program.tiles, *(program.tiles[-1],) * (MAX_LEVELS - len(program.tiles)))
    for row, values in zip(rows, (*levels, program.vthread), strict=True):
        for slot, value in zip(slots, values, strict=True):
            row[slot] = value
    return make_row(rows[:-1], rows[-1], 0, dict(program.knobs))
