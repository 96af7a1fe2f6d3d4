"""Programs of convolutions with lanes along channels that a search knows in addition to walks: their tiles fill the registers.

Walks double tiles step by step, and rarely reach tiles of 7 or 13 pixels, or of three vectors of channels. ResNet-50's
convolution of 7x7 pixels from 2048 to 512 channels, in int8, takes 0.79 of the time from one of these programs (one core of a
Zen 4). Of SqueezeNet's convolutions of 13x13 and 27x27 pixels, in float32, those with whole lines of pixels (`fills_lines`) take
0.76 to 1.06 of the time of the best of three other programs (one core of an Intel Xeon with AVX-512). In int8 with tile
registers, ResNet-50 with programs such as `filling_tiles` names takes 0.88 of the time that it takes with those that are fastest
while their weights are in L2 (one core of an Intel Xeon with AMX).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from gensor_gym.codegen.c.amx.tiling import MOST_SUMS
from gensor_gym.codegen.c.plan import make_plan
from gensor_gym.codegen.program import lower
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.coordinates import opened
from gensor_gym.graph.knobs import KNOB_INDEX
from gensor_gym.graph.schedule import Schedule, make_row
from gensor_gym.graph.starts import starts
from gensor_gym.graph.tables.layout import CONVOLUTION, KNOB, MAX_AXES, MAX_LEVELS, ROW, SPATIAL_SLOTS, TILE, slot_of
from gensor_gym.graph.tables.tables import SIZE_START
from gensor_gym.operators.traits import has_channel_lanes, is_convolution

VECTORS = 4
"""Largest number of vectors of channels of a register tile."""
LEAST = 12
"""Smallest number of accumulators of a register tile: its multiply-adds hide one another's latency and share their loads."""

VECTORS_OF_WINDOWS, ROWS_OF_WINDOWS, LEAST_OF_WINDOWS = (1, 2, 4), (1, 2, 4), 4
"""Of programs of `filled_by_windows`: numbers of vectors of channels, numbers of rows of pixels, smallest number of accumulators.
"""
IN_TILES = 4 * 16 + VECTORS + 1
"""Number of accumulators in four tile registers (AMX), and of the vectors that are not accumulators in their place."""
NEAR = 8
"""Weights are near if they take less than 1 / NEAR of L2."""
OF_LINES = 2
"""Number of vectors of channels of a program of `fills_lines`, so that an element of the image serves two multiply-adds."""


def filled_registers(graph: ConstructionGraph) -> np.ndarray:
    """Return programs int32 [P, ROW] of a convolution with packed channels whose accumulators fill the registers.

    An image is copied if it is padded, and in int8 if its channels are first. Tasks have all pixels, and one register tile of
    channels or all channels. On several cores there are also tasks with all channels of a core's share of the images and lines
    and, if lines are fewer than cores, with both shares.
    """
    op, machine = graph.operator, graph.hardware
    slots = [slot_of(axis, len(op.spatial)) for axis in range(len(op.axes))]
    channel, down, across = slots[op.channel_axis], SPATIAL_SLOTS - 2, SPATIAL_SLOTS - 1
    extents = dict(zip(slots, op.extents, strict=True))
    registers = IN_TILES if op.dtype in dict(machine.tensor_peak) else int(machine.memory[0].capacity) // (4 * machine.lanes)
    sizes = {slot: sizes_of(graph, slot) for slot in slots}
    widths = [vectors * machine.lanes for vectors in range(1, VECTORS + 1)]
    packed = int((op.dtype == "int8" and is_convolution(op)) or op.reads[0].is_padded(op.extents))
    batch, units = slots[op.spatial[0]], machine.units
    whole = extents[batch], extents[down]
    share = -(-whole[0] // units), -(-whole[1] // -(-units // whole[0]))
    kinds = [(False, whole, 0), (True, whole, 0), (True, whole, 1)]
    kinds += [(True, share, 0), (True, share, 1)] if share != whole else []
    kinds += [(False, share, 0)] if math.prod(whole) < units else []
    found = []
    for width, rows, columns in itertools.product(widths, sizes[down], sizes[across]):
        vectors, pixels = width // machine.lanes, rows * columns
        if width not in sizes[channel] or not LEAST <= vectors * pixels <= registers - vectors - 1:
            continue
        register = {channel: width, down: rows, across: columns}
        for all_channels, (images, lines), order in kinds:
            wanted = extents | {channel: extents[channel] if all_channels else width, batch: images, down: lines}
            task = {s: whole_size(sizes[s], n, register.get(s, 1)) for s, n in wanted.items()}
            inner = {s: task[s] if s >= SPATIAL_SLOTS else register.get(s, 1) for s in slots}
            tiles = [[level.get(s, 1) for s in range(MAX_AXES)] for level in (register, inner, *[task] * (MAX_LEVELS - 2))]
            knobs = {"convolution": 1, "pack_a": packed, "pack_b": 1, "loop_order": order, "unroll": 4}
            found.append(make_row(tiles, [1] * MAX_AXES, 2, knobs))
    return legal(graph, found)


def filled_by_windows(graph: ConstructionGraph) -> np.ndarray:
    """Return programs int32 [P, ROW] of a depthwise convolution with channels last (`traits.shares_lanes`).

    A register tile has all taps of some pixels and vectors of channels, so each element of the image is loaded once. Half of the
    registers are accumulators, others hold taps. A task has all channels of a core's share of the lines, or one register tile of
    channels of all lines.
    """
    op, machine = graph.operator, graph.hardware
    slots = [slot_of(axis, len(op.spatial)) for axis in range(len(op.axes))]
    *_, down, across, channel = slots[: len(op.spatial)]
    extents = dict(zip(slots, op.extents, strict=True))
    taps = {slot: extents[slot] for slot in slots[len(op.spatial) :]}
    sizes = {slot: sizes_of(graph, slot) for slot in slots}
    registers = int(machine.memory[0].capacity) // (4 * machine.lanes)
    lines, found = -(-extents[down] // machine.units), []
    for vectors, rows, columns in itertools.product(VECTORS_OF_WINDOWS, ROWS_OF_WINDOWS, sizes[across]):
        register = {**taps, channel: vectors * machine.lanes, down: rows, across: columns}
        fits = all(size in sizes[slot] for slot, size in register.items())
        if not fits or not LEAST_OF_WINDOWS <= vectors * rows * columns <= registers // 2:
            continue
        for wanted, order in (({down: lines}, 0), ({down: lines}, 1), ({channel: register[channel]}, 0)):
            task = {s: whole_size(sizes[s], n, register.get(s, 1)) for s, n in (extents | wanted).items()}
            tiles = [[level.get(s, 1) for s in range(MAX_AXES)] for level in (register, register, *[task] * (MAX_LEVELS - 2))]
            found.append(make_row(tiles, [1] * MAX_AXES, 2, {"loop_order": order, "unroll": 1}))
    return legal(graph, found)


def filled_by_pixels(graph: ConstructionGraph) -> np.ndarray:
    """Return programs int32 [P, ROW] of a convolution as a shifted product, whose accumulators of pixels fill the registers.

    All tiles are equal. There are none if an image has channels last.
    """
    slots = [slot_of(axis, len(graph.operator.spatial)) for axis in graph.operator.spatial]
    channel, down, across = slots[graph.operator.channel_axis], SPATIAL_SLOTS - 2, SPATIAL_SLOTS - 1
    registers = int(graph.hardware.memory[0].capacity) // (4 * graph.hardware.lanes)
    found = []
    for start in starts(graph.tables, graph.initial().row):
        for tile in itertools.product(*(sizes_of(graph, slot) for slot in (channel, down, across))):
            vectors = -(-tile[1] * tile[2] // graph.hardware.lanes)
            if start[CONVOLUTION] == 2 and vectors <= VECTORS and LEAST <= tile[0] * vectors <= registers - vectors - 1:
                row = opened(start, graph.tables.ints)
                row[TILE : TILE + MAX_LEVELS * MAX_AXES].reshape(MAX_LEVELS, MAX_AXES)[:, [channel, down, across]] = tile
                found.append(row)
    return legal(graph, found)


def with_columns_of_taps(graph: ConstructionGraph, rows: np.ndarray) -> np.ndarray:
    """Return programs like `rows` [P, ROW] whose register tiles contain all rows of a window, which are then unrolled."""
    op, made = graph.operator, rows.copy()
    made[:, TILE + slot_of(op.reduce[1], len(op.spatial))] = op.extents[op.reduce[1]]
    return legal(graph, list(made))


def legal(graph: ConstructionGraph, rows: list[np.ndarray]) -> np.ndarray:
    """Return the legal ones of encoded programs, int32 [P, ROW]."""
    kept = [row for row in rows if graph.is_legal(Schedule(row))]
    return np.array(kept, dtype=np.int32).reshape(len(kept), ROW)


def in_blocks(graph: ConstructionGraph, rows: np.ndarray) -> np.ndarray:
    """Return programs int32 [P, ROW] like `rows` of `filled_registers` whose reduction is cut into blocks of input channels.

    A block's weights fit in two fifths of L1. Partial sums of one register tile's channels and of as many lines of pixels as
    fit in half of L1 are stored between blocks. So weights are read once, one after another. Output channels stay in the outer
    loop, because other programs jump from panel to panel.
    """
    op, machine = graph.operator, graph.hardware
    slots = [slot_of(axis, len(op.spatial)) for axis in range(len(op.axes))]
    channel, down, inputs = slots[op.channel_axis], SPATIAL_SLOTS - 2, slots[op.reduce[0]]
    taps, l1 = math.prod(op.extents[a] for a in op.reduce[1:]), machine.level("l1").capacity
    found = []
    for row in rows:
        register, task = (row[TILE + level * MAX_AXES : TILE + (level + 1) * MAX_AXES] for level in (0, 2))
        parts = [size for size in sizes_of(graph, inputs) if op.extents[op.reduce[0]] % size == 0]
        depth = _below(parts, 1, 2 * l1 // (5 * 4 * taps * int(register[channel])))
        line = 4 * int(register[channel]) * int(task[SPATIAL_SLOTS - 1])
        lines = min(_below(sizes_of(graph, down), int(register[down]), l1 // (2 * line)), int(task[down]))
        if depth < op.extents[op.reduce[0]] and not row[KNOB + KNOB_INDEX["loop_order"]]:
            made = row.copy()
            inner = made[TILE + MAX_AXES : TILE + 2 * MAX_AXES]
            inner[[down, SPATIAL_SLOTS - 1, inputs]] = lines, task[SPATIAL_SLOTS - 1], depth
            found.append(made)
    return legal(graph, found)


def _below(sizes: list[int], step: int, most: int) -> int:
    """Return the largest multiple of `step` among `sizes` that is at most `most`, or `step`."""
    return max((size for size in sizes if size % step == 0 and size <= most), default=step)


def fills_lines(graph: ConstructionGraph, schedule: Schedule) -> bool:
    """Return whether a register tile has two vectors of channels and one line of pixels, or an equal part of one.

    No pixel is then computed twice, and neighbouring taps share the elements of their lines. The model does not know of this, nor
    that lines are stored by turning registers.
    """
    op, lanes = graph.operator, graph.hardware.lanes
    channel, columns = (slot_of(axis, len(op.spatial)) for axis in (op.channel_axis, op.spatial[-1]))
    width, rows, pixels = (int(schedule.tile[0, slot]) for slot in (channel, columns - 1, columns))
    whole = rows == 1 and op.extents[op.spatial[-1]] % pixels == 0 and OF_LINES * pixels >= LEAST
    return whole and width == OF_LINES * lanes and schedule.knob("convolution") == 1


def has_tiles(graph: ConstructionGraph) -> bool:
    """Return whether tile registers may multiply a convolution of int8 with constant weights."""
    op = graph.operator
    return op.frozen and op.dtype == "int8" and has_channel_lanes(op) and "int8" in dict(graph.hardware.tensor_peak)


def filling_tiles(graph: ConstructionGraph, schedules: Sequence[Schedule]) -> list[Schedule]:
    """Return the programs of a ranking to measure first if tile registers multiply int8.

    Their register tiles have four tiles of sums and are in a task with all channels; those that compute the fewest pixels twice
    come first. They are tiles of all pixels, which read weights once, or of two vectors, which load the fewest rows. Without
    these, they are tiles of one vector. The model leaves out that panels come from L2 or beyond.

    If weights are far, calls of the network find them in no cache, while trials do. So all such programs that read weights in the
    outer loop, and prefetch the next panel, come before others. If weights are near, the first program of each kind is enough.
    """
    if not has_tiles(graph):
        return []
    op, channel = graph.operator, slot_of(graph.operator.channel_axis, len(graph.operator.spatial))
    near = op.reads[1].tensor.size < graph.hardware.level("l2").capacity // NEAR
    pixels = {slot_of(a, len(op.spatial)): op.extents[a] for a in op.spatial[-2:]}
    found = list[tuple[int, int, str, int]]()
    for place, schedule in enumerate(schedules):
        tile, order = schedule.tile, schedule.knob("loop_order")
        vectors = int(tile[0, channel]) // graph.hardware.lanes
        if schedule.knob("convolution") != 1 or schedule.knob("thread_split") > 1 or vectors not in (1, 2) or order > near:
            continue
        if tile[-1, channel] < op.extents[op.channel_axis] or tile[1, channel] != tile[0, channel]:
            continue
        plan = make_plan(lower(op, schedule, graph.hardware))
        if plan.tiling is None or len(plan.tiling.parts) * vectors != MOST_SUMS:
            continue
        sizes = {slot: int(tile[0, slot]) for slot in pixels}
        whole = all(sizes[slot] >= extent for slot, extent in pixels.items())
        kind = "square" if vectors == 2 else "whole" if whole else "tall"
        computed = math.prod(-(-extent // sizes[slot]) * sizes[slot] for slot, extent in pixels.items())
        found.append((computed, place, kind, order))
    first: dict[object, int] = {}
    for one in sorted([one for one in found if one[2] != "tall"] or found):
        first.setdefault(one[2:] if near else one, one[1])
    return [schedules[place] for place in first.values()]


def sizes_of(graph: ConstructionGraph, slot: int) -> list[int]:
    """Return the tile sizes of an axis."""
    starts = graph.tables.ints[SIZE_START + slot : SIZE_START + slot + 2]
    return [int(size) for size in graph.tables.sizes[starts[0] : starts[1]]]


def whole_size(sizes: list[int], extent: int, step: int) -> int:
    """Return the smallest of `sizes` that is a multiple of `step` and at least `extent`, else the largest multiple."""
    multiples = [size for size in sizes if size % step == 0]
    return next((size for size in multiples if size >= extent), max(multiples, default=step))
