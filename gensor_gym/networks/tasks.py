"""Schedules near a given schedule whose tasks (the units that threads take) compute a given number of rows of the result.

Kernels that share one loop need equal numbers of rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from gensor_gym.chains.chain import shape_of
from gensor_gym.chains.room import placement
from gensor_gym.codegen.build import generate
from gensor_gym.codegen.c.text import round_up
from gensor_gym.codegen.families import family_of, graph_of
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.gir.nest import row_nest
from gensor_gym.gir.schedule import FIELDS, HEADER, GirSchedule
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.structure import LEVELS
from gensor_gym.graph.tables.layout import KNOB, LEVEL, SPATIAL_SLOTS
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

STEP = 4
"""A product's rows are rounded up to a multiple of this, so that register tiles of many heights divide the rows of a task."""
_TALLEST, _WIDEST = 16, 8
"""Largest register tile of a product: number of rows, and number of vectors in a row."""
_DOWN, _ALONG = SPATIAL_SLOTS - 2, SPATIAL_SLOTS - 1
"""Indices of a product's rows and columns among the axes of a schedule's tiles."""


def rows_of_product(computation: Operator | Dataflow) -> int:
    """Return the number of rows of a product of two matrices; 0 for other computations.

    The product may have maps and reductions of its rows after it. The number is rounded up to a multiple of four (`STEP`).
    """
    op = family_of(computation).scheduled(computation)
    if not isinstance(op, Operator):
        return 0
    try:
        return round_up(shape_of(op).rows, STEP) if len(op.spatial) == 2 else 0
    except ValueError:
        return 0


def by_rows(
    computation: Operator | Dataflow, schedule: Schedule | GirSchedule, rows: int, hw: Hardware
) -> Iterator[Schedule | GirSchedule]:
    """Yield legal schedules near `schedule` whose tasks, or consecutive tasks together, compute `rows` rows of the result.

    `schedule` comes first if its tasks do. The others follow, the fastest by the model first.
    """
    if generate(computation, schedule, hw).tasks_of(rows):
        yield schedule
    graph: Any = graph_of(computation, hw)
    made: list[Schedule | GirSchedule]
    op = family_of(computation).scheduled(computation)
    if isinstance(op, Operator):
        assert isinstance(schedule, Schedule)
        bases = (schedule, graph.initial())  # knobs of `schedule` may conflict with such tiles, the defaults never do
        made = [one for base in bases for one in _products(graph, op, base, rows, hw)]
    else:
        assert isinstance(schedule, GirSchedule)
        made = list(_nests(op, schedule, rows))
    legal = [one for one in dict.fromkeys(made) if one != schedule and graph.is_legal(one)]
    order = np.argsort(graph.latencies(np.stack([one.row for one in legal])), kind="stable") if legal else ()
    yield from (legal[place] for place in order if generate(computation, legal[place], hw).tasks_of(rows))


def first_by_rows(
    computation: Operator | Dataflow, schedule: Schedule | GirSchedule, rows: int, hw: Hardware
) -> Schedule | GirSchedule:
    """Return the first schedule of `by_rows`. ValueError if there is none."""
    found = next(by_rows(computation, schedule, rows, hw), None)
    if found is None:
        raise ValueError(f"{computation}: no legal schedule near {schedule} has tasks of {rows} rows or a part of them")
    return found


def _nests(computation: Dataflow, schedule: GirSchedule, rows: int) -> Iterator[GirSchedule]:
    """Yield schedules of a row nest (maps and reductions of each row) whose tasks have `rows` rows or a divisor of them."""
    kept = placement(row_nest(computation))
    named = {field.name: place for place, field in enumerate(FIELDS)}
    sizes = {name: FIELDS[named[name]].values for name in ("rows", "loop")}
    for together, steps in itertools.product(sizes["rows"], sizes["loop"]):
        if rows % (together * steps) == 0:
            row = schedule.row.copy()
            row[named["rows"]], row[named["loop"]] = sizes["rows"].index(together), sizes["loop"].index(steps)
            yield GirSchedule(row)
            row = row.copy()  # values in DRAM between passes may end a kernel
            row[HEADER : HEADER + len(kept)] = kept
            yield GirSchedule(row)


def _products(graph: Any, op: Operator, schedule: Schedule, rows: int, hw: Hardware) -> Iterator[Schedule]:
    """Yield schedules of a product whose tasks have `rows` rows or a divisor of them; at least one if `rows` is a power of two.

    A task has all columns, a thread's share of them, or those of `schedule`. The reduction is whole, or that of `schedule`.
    """
    columns, ladder = op.extents[op.spatial[-1]], graph.tables.ladder(_ALONG)
    had = Schedule(schedule.row).tile[-1]
    parts = sorted({rows, rows // 2, rows // 4, rows & -rows, int(had[_DOWN])} - {0})
    for wide in (size for size in ladder if size <= _WIDEST * hw.lanes):
        wanted = (columns, columns / hw.units, int(had[_ALONG]))
        lengths = {next((size for size in ladder if size >= length and size % wide == 0), 0) for length in wanted} - {0}
        for part, length, packed in itertools.product((part for part in parts if rows % part == 0), lengths, (0, 1)):
            for tall in (tall for tall in range(1, _TALLEST + 1) if part % tall == 0):
                made = _with_tiles(schedule, (tall, part), (wide, length), packed, hw)
                yield from (made, _with_whole_sums(graph, op, made))


def _with_tiles(schedule: Schedule, down: tuple[int, int], along: tuple[int, int], packed: int, hw: Hardware) -> Schedule:
    """Return the schedule with other tiles. `down` and `along` are (register tile, task tile) of rows and of columns.

    Tasks copy their rows of the left matrix if `packed` is 1.
    """
    row = schedule.row.copy()
    tile = Schedule(row).tile.copy()
    tile[0, _DOWN], tile[1:, _DOWN] = down
    tile[:2, _ALONG], tile[2:, _ALONG] = along
    row[: tile.size], row[LEVEL] = tile.ravel(), LEVELS[hw.kind] - 1
    for name, value in (("thread_split", 1), ("pack_a", packed)):
        place = KNOB_INDEX[name]
        row[KNOB + place] = KNOBS[place].values.index(value)
    return Schedule(row)


def _with_whole_sums(graph: Any, op: Operator, schedule: Schedule) -> Schedule:
    row = schedule.row.copy()
    tile = Schedule(row).tile.copy()
    for place, axis in enumerate(op.reduce):
        slot = SPATIAL_SLOTS + place
        step, extent = int(tile[0, slot]), op.extents[axis]
        whole = next((size for size in graph.tables.ladder(slot) if size >= extent and size % step == 0), int(tile[-1, slot]))
        tile[1:, slot] = whole
    row[: tile.size] = tile.ravel()
    return Schedule(row)
