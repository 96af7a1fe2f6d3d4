"""Derive the innermost statements of a program and the loops around each, for Ansor's features (appendix B of the paper).

Statements are the update of an output element, its store, a copy for every staged or packed operand, and the addition of partial
sums if a reduction is split. Loops, listed from the outermost, follow from the schedule, not from generated code. An
instruction of tensor cores counts as its multiply-adds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, MAX_LEVELS, SPATIAL_SLOTS, TILE, VTHREAD
from gensor_gym.graph.tables.tables import EXTENT, IS_CPU, ITEM, LANES, NUM_READS, STAGED, STRIDE, VECTOR_SLOT
from gensor_gym.operators.traits import is_product

SERIAL, PARALLEL, UNROLLED, VECTORISED, BLOCK, VIRTUAL, THREAD = range(7)
NO_AXIS = -1
"""Value of `Loop.axis` for the loop over the partial sums of a split reduction, which belongs to no axis."""


@dataclass(frozen=True)
class Loop:
    """A loop around a statement, for a batch of B programs that all have it.

    `axis` is the slot of the axis, `extent` float64 [B] the number of iterations in each program, `kind` a constant such as
    SERIAL, and `level` the tile level.
    """

    axis: int
    extent: np.ndarray
    kind: int
    level: int


@dataclass(frozen=True)
class Nest:
    """An innermost statement of B programs with its loops, tensor accesses and operations.

    `present` bool [B] says which of the programs contain the statement.
    """

    name: str
    present: np.ndarray
    loops: list[Loop]
    accesses: list[tuple[int, str]]
    """(tensor, "r", "w" or "rw") of each access. Tensors are numbered: reads first, the output last."""
    operations: dict[str, float] = field(default_factory=dict)
    """Operation (mad, add, mul, div, cmp, math, other) -> number per iteration."""
    allocated: np.ndarray | None = None
    """Bytes of the buffer that the statement writes, float64 [B]; None if it writes the output."""


class Programs:
    """A batch of B programs of one graph, with their tile sizes; all have the same loop order and the same vectorised axis."""

    def __init__(self, graph: ConstructionGraph, rows: np.ndarray) -> None:
        """Decode the tile sizes float64 [B, levels, axes] of encoded programs `rows` [B, ROW].

        A tile that is longer than its axis counts as long as the axis.
        """
        self.graph, self.rows, self.ints = graph, rows, graph.tables.ints
        self.cpu = bool(self.ints[IS_CPU])
        extent = self.ints[EXTENT : EXTENT + MAX_AXES].astype(np.float64)
        tiles = rows[:, TILE:VTHREAD].reshape(-1, MAX_LEVELS, MAX_AXES)
        self.tiles = np.minimum(tiles, extent)
        self.vthread = np.minimum(rows[:, VTHREAD : VTHREAD + MAX_AXES], self.tiles[:, 0])
        self.extent = extent
        self.axes = [a for a in range(MAX_AXES) if extent[a] > 1]
        self.spatial = [a for a in self.axes if a < SPATIAL_SLOTS]
        self.reduce = [a for a in self.axes if a >= SPATIAL_SLOTS]

    def knob(self, name: str) -> np.ndarray:
        """Return the value of a knob in every program, float64 [B]."""
        values = np.array(KNOBS[KNOB_INDEX[name]].values, dtype=np.float64)
        return values[self.rows[:, KNOB + KNOB_INDEX[name]]]

    def steps(self, axis: int, outer: int, inner: int) -> np.ndarray:
        """Count the tiles of level `inner` in one tile of level `outer` along an axis, float64 [B].

        With `outer=MAX_LEVELS` the whole extent of the axis is divided.
        """
        whole = self.extent[axis] if outer == MAX_LEVELS else self.tiles[:, outer, axis]
        return np.ceil(whole / self.tiles[:, inner, axis])


def nests_of(programs: Programs) -> list[Nest]:
    """List every statement that one of the programs may contain; `Nest.present` says which programs do contain it."""
    op = programs.graph.operator
    loops = _cpu_loops(programs) if programs.cpu else _gpu_loops(programs)
    write, ones = int(programs.ints[NUM_READS]), np.ones(len(programs.rows), dtype=bool)
    body = "mad" if is_product(op) else "add" if op.reduction.infix else "cmp"
    if op.body == "map":
        body = "math" if op.function in ("exp", "gelu") else "other"
    reads = [(t, "r") for t in range(write)]
    shares = programs.knob("thread_split") * programs.knob("split_k") * programs.knob("reduce_threads")
    nests = [Nest("update", ones, loops, [*reads, (write, "rw" if op.reduce else "w")], {body: 1.0})]
    if op.reduce:
        spatial = [loop for loop in loops if 0 <= loop.axis < SPATIAL_SLOTS]
        functions = {"math": float(sum(s.name == "gelu" for s in op.epilogue)), "other": float(len(op.epilogue))}
        nests.append(Nest("store", ones, spatial, [(write, "w")], functions | {"div": float(op.divisor > 1)}))
        parts = Loop(NO_AXIS, shares, SERIAL, 0)
        nests.append(Nest("combine", shares > 1, [*spatial, parts], [(write, "rw")], {"add": 1.0}))
    return [*nests, *(_copy(programs, loops, t) for t in range(write))]


def _cpu_loops(p: Programs) -> list[Loop]:
    """List the loops of CPU programs, outermost first, as `codegen.c.loops` generates them.

    These are loops over parallel tasks, blocks of the reduction, L1 tiles, register tiles, and the elements of a register tile.
    """
    slot = int(p.ints[VECTOR_SLOT + int(p.rows[0, KNOB + KNOB_INDEX["convolution"]])])
    others, vector = [a for a in p.spatial if a != slot], [a for a in p.spatial if a == slot]
    inside = p.rows[0, KNOB + KNOB_INDEX["loop_order"]] == 0
    order = [*vector, *p.reduce, *others] if inside else [*others, *p.reduce, *vector]
    split = p.knob("thread_split")
    loops = [Loop(a, p.steps(a, MAX_LEVELS, 2), PARALLEL, 3) for a in p.spatial]
    for number, a in enumerate(p.reduce):
        steps = p.steps(a, MAX_LEVELS, 2)
        shared = np.minimum(split, steps) if number == 0 else np.ones_like(steps)
        loops += [Loop(a, shared, PARALLEL, 3)] if number == 0 else []
        loops.append(Loop(a, np.ceil(steps / shared), SERIAL, 3))
    loops += [Loop(a, p.steps(a, 2, 1), SERIAL, 2) for a in order]
    loops += [Loop(a, p.steps(a, 1, 0), SERIAL, 1) for a in order if a in p.spatial]
    loops += [Loop(a, p.steps(a, 1, 0), SERIAL, 1) for a in p.reduce]
    loops += [Loop(a, p.tiles[:, 0, a], UNROLLED, 0) for a in p.reduce if a != slot]
    loops += [Loop(a, p.tiles[:, 0, a], UNROLLED, 0) for a in others]
    if slot in p.axes:
        lanes = np.minimum(p.tiles[:, 0, slot], float(p.ints[LANES]))
        loops.append(Loop(slot, np.ceil(p.tiles[:, 0, slot] / lanes), UNROLLED, 0))
        loops.append(Loop(slot, lanes, VECTORISED, 0))
    return loops


def _gpu_loops(p: Programs) -> list[Loop]:
    """List the loops of GPU programs, outermost first.

    These are blocks, virtual threads, threads, steps of the reduction, single reduction iterations, and the elements of a thread.
    """
    split, threads = p.knob("split_k"), p.knob("reduce_threads")
    loops = [Loop(a, p.steps(a, MAX_LEVELS, 1), BLOCK, 2) for a in p.spatial]
    inner: list[Loop] = []
    for number, a in enumerate(p.reduce):
        steps, points = p.steps(a, MAX_LEVELS, 1), p.steps(a, 1, 0)
        blocks = np.minimum(split, steps) if number == 0 else np.ones_like(steps)
        lanes = np.minimum(threads, points) if number == len(p.reduce) - 1 else np.ones_like(points)
        loops += [Loop(a, blocks, BLOCK, 2)] if number == 0 else []
        inner += [Loop(a, lanes, THREAD, 1)] if number == len(p.reduce) - 1 else []
        inner += [Loop(a, np.ceil(steps / blocks), SERIAL, 2), Loop(a, np.ceil(points / lanes), SERIAL, 1)]
    loops += [Loop(a, p.vthread[:, a].astype(np.float64), VIRTUAL, 1) for a in p.spatial]
    loops += [Loop(a, p.steps(a, 1, 0), THREAD, 1) for a in p.spatial]
    loops += sorted(inner, key=lambda loop: (loop.kind != THREAD, -loop.level))
    loops += [Loop(a, p.tiles[:, 0, a], UNROLLED, 0) for a in p.reduce]
    return loops + [Loop(a, p.tiles[:, 0, a] / p.vthread[:, a], UNROLLED, 0) for a in p.spatial]


def _copy(p: Programs, loops: list[Loop], tensor: int) -> Nest:
    """Build the statement that copies a tile of operand `tensor` into shared memory or a packed buffer.

    It runs once per iteration of the loops outside the tile's level.
    """
    level = 2 if p.cpu else 1
    if p.cpu:
        present = (p.knob("pack_a") if tensor == 0 else p.knob("pack_b") if tensor == 1 else np.zeros(len(p.rows))) > 0
    else:
        present = np.full(len(p.rows), bool(p.ints[STAGED + tensor])) | (p.knob("tensor_core") > 0)
    moving = [a for a in p.axes if p.ints[STRIDE + tensor * MAX_AXES + a] != 0]
    outside = [loop for loop in loops if loop.level > level]
    tile = {a: p.tiles[:, level, a] for a in moving}
    inner = [Loop(a, tile[a], THREAD if not p.cpu else SERIAL, level) for a in moving]
    if not p.cpu and moving:
        last = moving[-1]
        width = np.minimum(p.knob("vector"), tile[last])
        inner[-1] = Loop(last, np.ceil(tile[last] / width), THREAD, level)
        inner.append(Loop(last, width, VECTORISED, level))
    size = np.prod(list(tile.values()), axis=0) if tile else np.ones(len(p.rows))
    return Nest(f"copy {tensor}", present, [*outside, *inner], [(tensor, "r")], {}, size * float(p.ints[ITEM + tensor]))
