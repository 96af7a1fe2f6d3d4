"""Ansor's features: one vector for every innermost statement of a program (appendix B of the paper; TVM's `feature.cc`).

The groups are Ansor's: operations, vectorised, unrolled and parallel loops, GPU threads, buffers, the curve of arithmetic
intensity, allocations, outer loops. The features come from a schedule, not from lowered code, and therefore differ. Index
arithmetic is not counted. Buffers are in the operator's order, not sorted by size. The values of our knobs are appended, because
most knobs are not loops. The intensity is log2(operations / bytes); the authors' quotient of logarithms is a known error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.ansor.loop_nests import BLOCK, PARALLEL, THREAD, UNROLLED, VECTORISED, VIRTUAL, Loop, Nest, Programs, nests_of
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, MAX_DIMS, SPATIAL_SLOTS
from gensor_gym.graph.tables.tables import COEF, ITEM, NUM_DIMS, PADDED, STRIDE, VIEW

LINE = 64.0
"""Bytes of a cache line."""
MAX_BUFFERS = 5
CURVE = 10
"""Number of points on the curve of arithmetic intensity."""
OPERATIONS = ("mad", "add", "mul", "div", "cmp", "math", "other")
POSITIONS = 8
"""Number of one-hot positions of annotated loops in a nest.

The positions are: no such loop; inner, middle or outer spatial loop; inner, middle or outer reduce loop; both kinds.
"""
BUFFER = 18
NUM_FEATURES = 8 + 3 * (3 + POSITIONS) + 8 + MAX_BUFFERS * BUFFER + CURVE + 4 + 3 + len(KNOBS)
"""Number of features of a statement."""


@dataclass(frozen=True)
class Statements:
    """Features of the statements of `count` programs.

    `values` float32 [R, F] has one row per statement, and `program` int64 [R] is the index of the program that contains it.
    """

    values: np.ndarray
    program: np.ndarray
    count: int

    @classmethod
    def joined(cls, parts: list[Statements]) -> Statements:
        """Concatenate the features of several batches of programs. The programs of the result are numbered consecutively."""
        starts = np.cumsum([0, *(part.count for part in parts)])
        values = [np.empty((0, NUM_FEATURES), dtype=np.float32), *(part.values for part in parts)]
        program = [np.empty(0, dtype=np.int64), *(p.program + s for p, s in zip(parts, starts[:-1], strict=True))]
        return cls(np.concatenate(values), np.concatenate(program), int(starts[-1]))


def statement_features(graph: ConstructionGraph, rows: np.ndarray) -> Statements:
    """Compute the features of all statements of encoded programs `rows` int32 [B, ROW], which must be well formed."""
    order, convolution = (KNOB + KNOB_INDEX[name] for name in ("loop_order", "convolution"))
    structures = rows[:, [order, convolution]]
    values, programs = [np.empty((0, NUM_FEATURES), dtype=np.float32)], [np.empty(0, dtype=np.int64)]
    for structure in np.unique(structures, axis=0):
        members = np.flatnonzero((structures == structure).all(axis=1))
        batch = Programs(graph, rows[members])
        for nest in nests_of(batch):
            if nest.present.any():
                found = _features(batch, nest)
                values.append(found[nest.present])
                programs.append(members[nest.present])
    return Statements(np.concatenate(values), np.concatenate(programs), len(rows))


def _log(values: np.ndarray) -> np.ndarray:
    return np.log2(np.asarray(values, dtype=np.float64) + 1.0)


def _features(p: Programs, nest: Nest) -> np.ndarray:
    turns = _product(p, nest.loops)
    touched, inner = _touched(p, nest)
    blocks = [
        _operations(p, nest, turns),
        *(_annotated(p, nest.loops, kinds) for kinds in ((VECTORISED,), (UNROLLED,), (PARALLEL, BLOCK))),
        _threads(p, nest.loops),
        _buffers(p, nest, touched, inner),
        _curve(nest, touched, inner),
        _allocation(p, nest, turns),
        _outside(p, nest, turns),
        p.rows[:, KNOB : KNOB + len(KNOBS)].astype(np.float64),
    ]
    return np.concatenate(blocks, axis=1).astype(np.float32)


def _product(p: Programs, loops: list[Loop]) -> np.ndarray:
    product = np.ones(len(p.rows))
    for loop in loops:
        product = product * loop.extent
    return product


def _operations(p: Programs, nest: Nest, turns: np.ndarray) -> np.ndarray:
    """Return features [B, 8]: the logs of how often each kind of operation runs, then of the number of guarded iterations.

    Iterations are guarded by a condition if a tile or padding reaches beyond an axis or a tensor. `turns` is the number of times
    that the statement runs.
    """
    counts = [_log(nest.operations.get(name, 0.0) * turns) for name in OPERATIONS]
    padded = any(p.ints[PADDED + tensor] for tensor, _ in nest.accesses)
    overhang = np.zeros(len(p.rows), dtype=bool)
    for axis in p.axes:
        overhang |= _product(p, [loop for loop in nest.loops if loop.axis == axis]) > p.extent[axis]
    return np.column_stack([*counts, (overhang | padded) * _log(turns)])


def _annotated(p: Programs, loops: list[Loop], kinds: tuple[int, ...]) -> np.ndarray:
    """Return features [B, 11] of the loops whose kind is in `kinds` (such as vectorised, unrolled or parallel loops).

    Only loops with more than one iteration count. The features are the number of these loops, the log of their total iterations,
    the log of the innermost loop's iterations, and the one-hot position (POSITIONS).
    """
    mine = [loop for loop in loops if loop.kind in kinds]
    number, product, length = np.zeros(len(p.rows)), np.ones(len(p.rows)), np.zeros(len(p.rows))
    spatial, reduce = np.zeros(len(p.rows), dtype=bool), np.zeros(len(p.rows), dtype=bool)
    level = np.zeros(len(p.rows), dtype=np.int64)
    for loop in mine:
        turns = loop.extent > 1
        number += turns
        product *= loop.extent
        length = np.where(turns, loop.extent, length)
        level = np.where(turns, min(loop.level, 2), level)
        spatial |= turns & (loop.axis < SPATIAL_SLOTS)
        reduce |= turns & (loop.axis >= SPATIAL_SLOTS)
    place = np.select([number == 0, spatial & reduce, spatial], [0, 7, 1 + level], 4 + level)
    return np.column_stack([number, _log(product), _log(length), np.eye(POSITIONS)[place]])


def _threads(p: Programs, loops: list[Loop]) -> np.ndarray:
    """Return features [B, 8] of parallelism on a GPU, all 0 on a CPU.

    The columns are 1; the logs of the numbers of blocks along the innermost spatial axis, the second innermost, and all other
    axes; the same three for threads; and the log of the number of virtual threads.
    """
    if p.cpu:
        return np.zeros((len(p.rows), 8))
    columns = [np.ones(len(p.rows))]
    for kind in (BLOCK, THREAD):
        for axes in ((SPATIAL_SLOTS - 1,), (SPATIAL_SLOTS - 2,), None):
            named = (SPATIAL_SLOTS - 1, SPATIAL_SLOTS - 2)
            mine = [x for x in loops if x.kind == kind and (x.axis in axes if axes else x.axis not in named)]
            columns.append(_log(_product(p, mine)))
    return np.column_stack([*columns, _log(_product(p, [loop for loop in loops if loop.kind == VIRTUAL]))])


def _touched(p: Programs, nest: Nest) -> tuple[np.ndarray, np.ndarray]:
    """Count what runs inside each of the D loops of a statement.

    Return (number of elements that every access touches [D + 1, accesses, B], number of iterations [D + 1, B]). Entry d counts
    loop d and all loops inside it; entry D counts a single run of the statement.
    """
    depth, size = len(nest.loops), len(p.rows)
    touched = np.ones((depth + 1, max(1, len(nest.accesses)), size))
    inner = np.ones((depth + 1, size))
    reach = np.ones((MAX_AXES, size))
    for d in range(depth - 1, -1, -1):
        loop = nest.loops[d]
        inner[d] = inner[d + 1] * loop.extent
        if loop.axis >= 0:
            reach[loop.axis] = np.minimum(reach[loop.axis] * loop.extent, p.extent[loop.axis])
        for number, (tensor, _) in enumerate(nest.accesses):
            moves = loop.axis >= 0 and p.ints[STRIDE + tensor * MAX_AXES + loop.axis] != 0
            touched[d, number] = np.prod(_box(p, tensor, reach), axis=0) if moves else touched[d + 1, number]
    return touched, inner


def _box(p: Programs, tensor: int, reach: np.ndarray) -> np.ndarray:
    """Return the side lengths [dimensions, B] of the box of a tensor's elements that a part of the iterations touches.

    `reach` [axes, B] is the number of iterations along each axis.
    """
    at = COEF + tensor * MAX_DIMS * MAX_AXES
    dims = int(p.ints[NUM_DIMS + tensor])
    steps = p.ints[at : at + dims * MAX_AXES].reshape(dims, MAX_AXES)
    view = p.ints[VIEW + tensor * MAX_DIMS : VIEW + tensor * MAX_DIMS + dims].astype(np.float64)
    return np.minimum(1.0 + steps @ (reach - 1.0), view[:, None])


def _buffers(p: Programs, nest: Nest, touched: np.ndarray, inner: np.ndarray) -> np.ndarray:
    columns = np.zeros((len(p.rows), MAX_BUFFERS * BUFFER))
    items = np.array([float(p.ints[ITEM + tensor]) for tensor, _ in nest.accesses])
    moved = (touched * items[None, :, None]).sum(axis=1)
    for number, (_, mode) in enumerate(nest.accesses[:MAX_BUFFERS]):
        found = _buffer(p, nest, number, touched[:, number], inner, moved)
        hot = np.repeat([[mode == "r", mode == "w", mode == "rw"]], len(p.rows), axis=0)
        columns[:, number * BUFFER : (number + 1) * BUFFER] = np.column_stack([hot, *found])
    return columns


def _buffer(
    p: Programs, nest: Nest, number: int, touched: np.ndarray, inner: np.ndarray, moved: np.ndarray
) -> list[np.ndarray]:
    """Return the features of one tensor access, each [B]: bytes, cache lines, kind of reuse, reuse distance and count, stride."""
    tensor = nest.accesses[number][0]
    item = float(p.ints[ITEM + tensor])
    stride, count, distance, distance_bytes = (np.zeros(len(p.rows)) for _ in range(4))
    run = np.ones(len(p.rows))
    for d in range(len(nest.loops) - 1, -1, -1):
        loop = nest.loops[d]
        step = 0 if loop.axis < 0 else int(p.ints[STRIDE + tensor * MAX_AXES + loop.axis])
        turns = loop.extent > 1
        if step:
            run = np.where(turns & (stride == 0), loop.extent, run)
            stride = np.where(turns & (stride == 0), step, stride)
            continue
        first = turns & (count == 0)
        count = np.where(first, loop.extent, count)
        distance = np.where(first, inner[d + 1], distance)
        distance_bytes = np.where(first, moved[d + 1], distance_bytes)
    accesses, unique = inner[0] * item, touched[0] * item
    share = np.minimum(1.0, np.maximum(stride, 1.0 / np.maximum(run, 1.0)) * item / LINE)
    lines, unique_lines = inner[0] * share, np.maximum(touched[0] * share, unique / LINE)
    copied = nest.name == "update" and number < len(nest.accesses) - 1
    serial = (count == 0) & copied
    kinds = [(count > 0) * 1.0, serial * 1.0, ((count == 0) & ~serial) * 1.0]
    often = np.maximum(count, 1.0)
    sizes = [accesses, unique, lines, unique_lines]
    shared = [_log(size / often) for size in sizes]
    return [*map(_log, sizes), *kinds, _log(distance), _log(distance_bytes), _log(count), *shared, _log(stride)]


def _curve(nest: Nest, touched: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Sample the curve of arithmetic intensity over the loops of a statement; return its logs [B, 10].

    The samples are at ten equidistant points of the log of the number of operations, with linear interpolation between loops.
    """
    work = max(sum(nest.operations.values()), 1.0)
    done = np.log2(inner * work)[::-1]
    intensity = done - np.log2(touched.sum(axis=1) * 4.0)[::-1]
    places = np.linspace(0.1, 1.0, CURVE)[:, None] * done[-1]
    result = np.repeat(intensity[:1], CURVE, axis=0)
    for d in range(1, len(done)):
        width = done[d] - done[d - 1]
        part = np.clip((places - done[d - 1]) / np.where(width > 0, width, 1.0), 0.0, 1.0)
        here = intensity[d - 1] + part * (intensity[d] - intensity[d - 1])
        result = np.where((places > done[d - 1]) & (width > 0), here, result)
    return np.asarray(result.T)


def _allocation(p: Programs, nest: Nest, turns: np.ndarray) -> np.ndarray:
    """Return the logs [B, 4] of the written buffer's bytes, the statement's runs, fills of the buffer, and elements per fill."""
    if nest.allocated is None:
        tensor = nest.accesses[-1][0]
        size = float(np.prod(p.ints[VIEW + tensor * MAX_DIMS : VIEW + tensor * MAX_DIMS + p.ints[NUM_DIMS + tensor]]))
        ones = np.ones(len(p.rows))
        return np.column_stack([_log(size * p.ints[ITEM + tensor] * ones), _log(turns), _log(ones), _log(turns)])
    elements = nest.allocated / float(p.ints[ITEM + nest.accesses[-1][0]])
    return np.column_stack([_log(nest.allocated), _log(turns), _log(turns / elements), _log(elements)])


def _outside(p: Programs, nest: Nest, turns: np.ndarray) -> np.ndarray:
    """Return features [B, 3]: log of the statement's runs, number of loops with more than one iteration, log of knob `unroll`."""
    number = sum(((loop.extent > 1).astype(np.float64) for loop in nest.loops), start=np.zeros(len(p.rows)))
    return np.column_stack([_log(turns), number, _log(p.knob("unroll"))])
