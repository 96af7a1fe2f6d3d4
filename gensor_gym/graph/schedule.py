"""Schedules, the nodes of the construction graph (Gensor's ETIR): rows of int32 with named parts."""

from __future__ import annotations

import json
import re
from typing import Self

import numpy as np

from gensor_gym.foreign import parse_object
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.tables.layout import KNOB, LAYOUT_VERSION, LEVEL, MAX_AXES, MAX_LEVELS, ROW, TILE, VTHREAD
from gensor_gym.rows.schedule import RowSchedule


class Schedule(RowSchedule):
    """A tensor program's schedule: an immutable, hashable row of integers with the layout of `graph/tables/layout.py`.

    Schedules with equal rows are equal.
    """

    __slots__ = ()
    length = ROW

    @property
    def tile(self) -> np.ndarray:
        """Tile size of every level and axis slot, [L, A]."""
        return self.row[TILE:VTHREAD].reshape(MAX_LEVELS, MAX_AXES)

    @property
    def vthread(self) -> np.ndarray:
        """Number of virtual threads of every axis slot, [A]."""
        return self.row[VTHREAD:LEVEL]

    @property
    def level(self) -> int:
        """Index of the memory level under construction; 0 is the registers."""
        return int(self.row[LEVEL])

    def knob(self, name: str) -> int:
        """Return the value of the knob `name`. ValueError if the row's index of the value is out of range."""
        place = KNOB_INDEX[name]
        values, index = KNOBS[place].values, int(self.row[KNOB + place])
        if not 0 <= index < len(values):
            raise ValueError(f"knob {name!r} has index {index}: expected 0 to {len(values) - 1}, one of its {values}")
        return values[index]

    def __str__(self) -> str:
        """Return the schedule as one line that `parse` reads, without knobs at their default.

        ValueError for a knob out of range.
        """
        tiles = " ".join("x".join(map(str, level)) for level in self.tile.tolist())
        knobs = [f" {k.name}={self.knob(k.name)}" for k in KNOBS if self.knob(k.name) != k.default]
        return f"tile[{tiles}] vthread[{'x'.join(map(str, self.vthread.tolist()))}] level={self.level}" + "".join(knobs)

    def __repr__(self) -> str:
        """Return `Schedule.parse('...')`, or `Schedule([...])` for an illegal row without a text."""
        try:
            return super().__repr__()
        except ValueError:
            return f"Schedule({self.row.tolist()})"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text of `str(schedule)`. ValueError names the part that cannot be read."""
        match = re.fullmatch(r"tile\[([\dx ]+)\] vthread\[([\dx]+)\] level=(\d+)((?: \w+=-?\d+)*)", text.strip())
        if match is None:
            raise ValueError(
                f"not a schedule: {text!r}; expected 'tile[1x..x1 .. 1x..x1] vthread[1x..x1] level=0 knob=value ..'"
            )
        tiles = [[int(n) for n in level.split("x")] for level in match[1].split()]
        vthread = [int(n) for n in match[2].split("x")]
        if [len(t) for t in tiles] != [MAX_AXES] * MAX_LEVELS or len(vthread) != MAX_AXES:
            raise ValueError(
                f"a schedule has {MAX_LEVELS} levels of {MAX_AXES} tile sizes and {MAX_AXES} vthreads: {text!r}"
            )
        knobs = dict(word.split("=") for word in match[4].split())
        return cls(make_row(tiles, vthread, int(match[3]), {name: int(value) for name, value in knobs.items()}))

    def to_json(self) -> str:
        """Return the schedule and the version of its layout as JSON text."""
        return json.dumps({"layout": LAYOUT_VERSION, "schedule": str(self)})

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """Read the text of `to_json`. ValueError if the text has another layout."""
        data = parse_object(text)
        if data.get("layout") != LAYOUT_VERSION:
            raise ValueError(f"schedule of layout {data.get('layout')!r}; this version reads layout {LAYOUT_VERSION}")
        if not isinstance(data.get("schedule"), str):
            raise ValueError(f"schedule is {data.get('schedule')!r}; expected its text")
        return cls.parse(data["schedule"])


def make_row(tiles: list[list[int]], vthread: list[int], level: int, knobs: dict[str, int] | None = None) -> np.ndarray:
    """Make a row int32 [ROW] from tiles [levels][axes], virtual threads [axes], the level, and values of knobs by name.

    Other knobs have their default. ValueError names an unknown knob or value.
    """
    row = np.empty(ROW, dtype=np.int32)
    row[TILE:VTHREAD] = np.asarray(tiles, dtype=np.int32).ravel()
    row[VTHREAD:LEVEL] = vthread
    row[LEVEL] = level
    for index, knob in enumerate(KNOBS):
        row[KNOB + index] = knob.values.index(knob.default)
    for name, value in (knobs or {}).items():
        if name not in KNOB_INDEX:
            raise ValueError(f"no knob {name!r}; knobs are {sorted(KNOB_INDEX)}")
        knob = KNOBS[KNOB_INDEX[name]]
        if value not in knob.values:
            raise ValueError(f"knob {name!r} has no value {value}; it takes {knob.values}")
        row[KNOB + KNOB_INDEX[name]] = knob.values.index(value)
    return row
