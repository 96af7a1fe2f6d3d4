"""Schedules whose tasks are blocks of so many whole rows, as pieces of one loop need them: those nearest to one that is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gensor_gym.chains.panel import panel_of
from gensor_gym.chains.room import placement
from gensor_gym.codegen.build import generate
from gensor_gym.construction import graph_of
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.gir.nest import row_nest
from gensor_gym.gir.schedule import FIELDS, HEADER, GirSchedule
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.structure import LEVELS
from gensor_gym.graph.tables.layout import KNOB, LEVEL, SPATIAL_SLOTS
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

_TALLEST, _WIDEST = 16, 8
"""Rows and vectors of a register tile, at most."""


def by_rows(
    computation: Operator | Dataflow, schedule: Schedule | GirSchedule, rows: int, hw: Hardware
) -> Iterator[Schedule | GirSchedule]:
    """Legal schedules near this one whose kernels have tasks of so many whole rows, by the model the fastest first."""
    graph: Any = graph_of(computation, hw)
    made: list[Schedule | GirSchedule]
    if isinstance(schedule, GirSchedule):
        assert isinstance(computation, Dataflow)
        made = list(_nests(computation, schedule, rows))
    else:
        op = panel_of(computation).product if isinstance(computation, Dataflow) else computation
        bases = (schedule, graph.initial())  # whose knobs may not go together with such tiles, and those that always do
        made = [one for base in bases for one in _products(graph, op, base, rows, hw)]
    legal = [one for one in made if graph.is_legal(one)]
    order = np.argsort(graph.latencies(np.stack([one.row for one in legal])), kind="stable") if legal else ()
    yield from (legal[place] for place in order if generate(computation, legal[place], hw).task_rows == rows)


def first_by_rows(
    computation: Operator | Dataflow, schedule: Schedule | GirSchedule, rows: int, hw: Hardware
) -> Schedule | GirSchedule:
    """The first of `by_rows`; ValueError where there is none."""
    found = next(by_rows(computation, schedule, rows, hw), None)
    if found is None:
        raise ValueError(f"{computation}: no legal schedule near {schedule} has tasks of {rows} rows")
    return found


def _nests(computation: Dataflow, schedule: GirSchedule, rows: int) -> Iterator[GirSchedule]:
    """A row nest's schedules with these rows in a task."""
    kept = placement(row_nest(computation))
    named = {field.name: field for field in FIELDS}
    for together in named["rows"].values:
        steps, rest = divmod(rows, together)
        if not rest and steps in named["loop"].values:
            row = schedule.row.copy()
            for place, field in enumerate(FIELDS):
                if field.name in ("rows", "loop"):
                    row[place] = field.values.index(together if field.name == "rows" else steps)
            yield GirSchedule(row)
            row = row.copy()  # what lies in DRAM between passes may end a kernel
            row[HEADER : HEADER + len(kept)] = kept
            yield GirSchedule(row)


def _products(graph: Any, op: Operator, schedule: Schedule, rows: int, hw: Hardware) -> Iterator[Schedule]:
    """A product's schedules with these rows and all columns in a task, and nothing that is shared out or copied before."""
    down, along = SPATIAL_SLOTS - 2, SPATIAL_SLOTS - 1
    columns, ladder = op.extents[op.spatial[-1]], graph.tables.ladder(along)
    heights = [tall for tall in range(1, _TALLEST + 1) if rows % tall == 0]
    for wide in (size for size in ladder if size <= _WIDEST * hw.lanes):
        whole = next((size for size in ladder if size >= columns and size % wide == 0), None)
        for tall in heights if whole is not None else ():
            row = schedule.row.copy()
            tile = Schedule(row).tile.copy()
            tile[:, down] = (tall, *[rows] * (len(tile) - 1))
            tile[:, along] = (wide, wide, *[whole] * (len(tile) - 2))
            row[: tile.size], row[LEVEL] = tile.ravel(), LEVELS[hw.kind] - 1
            for name, value in (("thread_split", 1), ("pack_a", 0)):
                place = KNOB_INDEX[name]
                row[KNOB + place] = KNOBS[place].values.index(value)
            yield Schedule(row)
