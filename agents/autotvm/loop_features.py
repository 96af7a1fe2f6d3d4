"""Features of programs for learned cost models: every loop of a fixed nest, in the same columns for every task.

AutoTVM describes a program by its loops: length, annotation, position, arithmetic, and accesses to each buffer (Chen et al.,
NeurIPS 2018, section 3.1). In the authors' extractor, a loop that indexes a buffer touches it, and any other loop reuses it. Our
nest has four (`STAGES`) loops over each of the 8 axis slots, including loops of length 1. Programs of all operators and machines
thus have the same columns, which transfer needs.

The nest, from the outermost loop (a tile of level l contains whole tiles of level l - 1; trip counts are rounded up):

GPU: grid of block tiles, virtual threads, threads; then steps of the reduction, register steps; then the register tile.

CPU: task tiles (parallel), reduce blocks; then L1 tiles, register tiles, ordered by knob `loop_order`; then the register tile.

Packing, shared memory and splits of a reduction are in the knobs' columns. The layout of columns is our reconstruction. Touched
elements are those of the dense box (windows overlap), which is more exact than a product of extents.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.compiled import compiled, lean
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, MAX_DIMS, MAX_TENSORS, SPATIAL_SLOTS, TILE, VTHREAD
from gensor_gym.graph.tables.tables import (
    BODY,
    BYTES,
    EXTENT,
    FLOPS,
    IS_CPU,
    ITEM,
    NUM_DIMS,
    NUM_READS,
    PAIR_WIDTH,
    PAIRS,
    STRIDE,
    UNITS,
    VECTOR_SLOT,
    VIEW,
)
from gensor_gym.operators.bodies import OBSERVED

STAGES = 4
"""Number of loops over each axis.

On a GPU: blocks (or reduce steps), virtual threads (or register steps), threads, register tile. On a CPU: task tiles (or reduce
blocks), L1 tiles, register tiles, register tile.
"""
LOOPS = STAGES * MAX_AXES
ANNOTATIONS = ("serial", "parallel", "block", "vthread", "thread", "unrolled", "vectorized")
SERIAL, PARALLEL, BLOCK, VIRTUAL, THREAD, UNROLLED, VECTORIZED = range(len(ANNOTATIONS))
LOOP_FIELDS = ("length", "position", "topdown", "bottomup", *ANNOTATIONS)
LENGTH, POSITION, TOPDOWN, BOTTOMUP, ANNOTATION = range(5)
TOUCH_FIELDS = ("stride", "count", "reuse", "thread_count", "thread_reuse")
STRIDES, COUNT, REUSE, THREAD_COUNT, THREAD_REUSE = range(5)
BLOCK_WIDTH = len(LOOP_FIELDS) + MAX_TENSORS * len(TOUCH_FIELDS)
"""Number of feature columns that describe one loop."""
KNOBS_AT = LOOPS * BLOCK_WIDTH
TASK_AT = KNOBS_AT + len(KNOBS)
TASK_FIELDS = (*(f"extent{a}" for a in range(MAX_AXES)), "flops", "bytes", "units", "item", "cpu", *OBSERVED)
WIDTH = TASK_AT + len(TASK_FIELDS)
"""Number F of all feature columns."""
_CONVOLUTION, _LOOP_ORDER = KNOB + KNOB_INDEX["convolution"], KNOB + KNOB_INDEX["loop_order"]
_TOUCHES, _FIELDS = len(LOOP_FIELDS), len(TOUCH_FIELDS)


def loop_features(graph: ConstructionGraph, rows: np.ndarray) -> np.ndarray:
    """Compute the loop features float32 [B, F] of well-formed encoded programs `rows` int32 [B, ROW].

    `loop_columns` names the F columns. Counts and products are log2(x + 1), ratios log2(x). The analytic model is not used.
    """
    features = np.zeros((len(rows), WIDTH), dtype=np.float32)
    _fill_features(np.ascontiguousarray(rows, dtype=np.int32), graph.tables.ints, features)
    features[:, TASK_AT:] = task_features(graph)
    return features


def task_features(graph: ConstructionGraph) -> np.ndarray:
    """Compute the features float32 [len(TASK_FIELDS)] that all programs of a graph share.

    The features are sizes of the operator and of the machine, and flags of their kinds.
    """
    ints, floats = graph.tables.ints, graph.tables.floats
    sizes = [*ints[EXTENT : EXTENT + MAX_AXES], floats[FLOPS], floats[BYTES], ints[UNITS], ints[ITEM]]
    kind = [float(ints[IS_CPU]), *(float(ints[BODY] == body) for body in range(len(OBSERVED)))]
    return np.concatenate([np.log2(np.array(sizes, dtype=np.float64) + 1.0), kind]).astype(np.float32)


def loop_columns() -> list[str]:
    """Return the names of the F columns of `loop_features`.

    Loops: columns `s0.a4.*` describe the loop of stage 0 over axis slot 4. `length` is log2 of the loop's length, and `position`
    its place in the nest. `topdown` is log2 of the product of the lengths of this loop and all outer loops, `bottomup` of this
    loop and all inner loops. Each annotation has a column that is 0 or 1.

    Loops and tensors: columns `s0.a4.t1.*` describe the accesses of that loop to tensor 1; the last tensor, 4, is the output.
    `count` is the number of elements that the loop and its inner loops touch, `reuse` the number of iteration points per touched
    element, and `stride` the number of elements between the accesses of two successive iterations. `thread_count` and
    `thread_reuse` are `count` and `reuse` divided by the `count` and `reuse` of one thread (on a CPU, of one task); both are 0
    for loops inside a thread.

    `knob.NAME` is the index of a knob's value. `task.NAME` is a flag, or log2 of an extent, of the number of operations, bytes or
    cores, or of the size of an element.
    """
    names = []
    for stage in range(STAGES):
        for axis in range(MAX_AXES):
            loop = f"s{stage}.a{axis}"
            names += [f"{loop}.{field}" for field in LOOP_FIELDS]
            names += [f"{loop}.t{t}.{field}" for t in range(MAX_TENSORS) for field in TOUCH_FIELDS]
    return names + [f"knob.{knob.name}" for knob in KNOBS] + [f"task.{field}" for field in TASK_FIELDS]


def loop_blocks(features: np.ndarray) -> np.ndarray:
    """Return a view [B, LOOPS, BLOCK_WIDTH] of the columns that describe loops, in features [B, F] of `loop_features`."""
    return features[:, :KNOBS_AT].reshape(len(features), LOOPS, BLOCK_WIDTH)


@compiled
def _fill_features(rows, ints, features):  # noqa: ANN001, ANN202
    trips = np.empty((STAGES, MAX_AXES), dtype=np.int64)
    order = np.empty(LOOPS, dtype=np.int64)
    spans = np.empty(MAX_AXES, dtype=np.int64)
    counts = np.empty((2, MAX_TENSORS), dtype=np.float64)
    for b in range(rows.shape[0]):
        fill_trips(rows[b], ints, trips)
        fill_order(rows[b], ints, order)
        _fill_loops(rows[b], ints, trips, order, spans, counts, features[b])
        for k in range(TASK_AT - KNOBS_AT):
            features[b, KNOBS_AT + k] = rows[b, KNOB + k]


@lean
def fill_trips(row, ints, trips):  # noqa: ANN001, ANN201
    """Compute the trip count of every loop of an encoded program `row` into `trips` [STAGES, axes].

    `ints` is the task's table of whole numbers. Compiled by Numba.
    """
    for axis in range(MAX_AXES):
        inner, mid, outer = row[TILE + axis], row[TILE + MAX_AXES + axis], row[TILE + 2 * MAX_AXES + axis]
        if ints[IS_CPU]:
            trips[0, axis] = (ints[EXTENT + axis] + outer - 1) // outer
            trips[1, axis], trips[2, axis], trips[3, axis] = outer // mid, mid // inner, inner
        else:
            trips[0, axis] = (ints[EXTENT + axis] + mid - 1) // mid
            if axis < SPATIAL_SLOTS:
                virtual = row[VTHREAD + axis]
                trips[1, axis], trips[2, axis], trips[3, axis] = virtual, mid // inner, inner // virtual
            else:
                trips[1, axis], trips[2, axis], trips[3, axis] = mid // inner, 1, inner


@lean
def fill_order(row, ints, order):  # noqa: ANN001, ANN201
    """Write the order of the loops of an encoded program into `order` [LOOPS], outermost first.

    A loop is written as stage * number of axis slots + axis.
    """
    if ints[IS_CPU] == 0:
        at = 0
        for stage in range(3):
            at = _put_stage(order, at, stage, True, -1)
        for stage in range(STAGES):
            at = _put_stage(order, at, stage, False, -1)
        _put_stage(order, at, 3, True, -1)
        return
    vector = vector_slot(row, ints)
    wide = vector if vector < SPATIAL_SLOTS else -1
    at = _put_stage(order, 0, 0, True, -1)
    at = _put_stage(order, at, 0, False, -1)
    for stage in (1, 2):
        at = _put_one(order, at, stage, wide) if row[_LOOP_ORDER] == 0 else _put_stage(order, at, stage, True, wide)
        if stage == 1:
            at = _put_stage(order, at, 1, False, -1)
        at = _put_stage(order, at, stage, True, wide) if row[_LOOP_ORDER] == 0 else _put_one(order, at, stage, wide)
    at = _put_stage(order, at, 2, False, -1)
    at = _put_stage(order, at, 3, False, vector)
    at = _put_stage(order, at, 3, True, vector)
    _put_one(order, at, 3, vector)


@lean
def vector_slot(row, ints):  # noqa: ANN001, ANN201
    """Return the slot of the axis that a CPU program is vectorised along."""
    return ints[VECTOR_SLOT + min(row[_CONVOLUTION], 2)]


@lean
def _put_one(order, at, stage, axis):  # noqa: ANN001, ANN202
    """Write the loop of a stage over `axis` to `order[at]`, or nothing for axis -1; return the next free index."""
    if axis < 0:
        return at
    order[at] = stage * MAX_AXES + axis
    return at + 1


@lean
def _put_stage(order, at, stage, spatial, skipped):  # noqa: ANN001, ANN202
    """Write a stage's loops over all spatial (or all reduce) axes except `skipped` to `order`, from index `at`.

    Return the next free index.
    """
    for axis in range(0 if spatial else SPATIAL_SLOTS, SPATIAL_SLOTS if spatial else MAX_AXES):
        if axis != skipped:
            order[at] = stage * MAX_AXES + axis
            at += 1
    return at


@lean
def _annotation(stage, axis, row, ints):  # noqa: ANN001, ANN202
    spatial = axis < SPATIAL_SLOTS
    if ints[IS_CPU]:
        if stage == 3:
            return VECTORIZED if axis == vector_slot(row, ints) else UNROLLED
        return PARALLEL if stage == 0 and spatial else SERIAL
    if stage == 3:
        return UNROLLED
    if not spatial:
        return SERIAL
    return BLOCK if stage == 0 else VIRTUAL if stage == 1 else THREAD


@compiled
def _fill_loops(row, ints, trips, order, spans, counts, out):  # noqa: ANN001, ANN202
    """Compute the feature columns of every loop of one program into `out`, from the innermost loop to the outermost.

    `spans` [axes] and `counts` [2, tensors] (in total, and per thread) are scratch memory.
    """
    spans[:] = 1
    total = np.float64(1.0)
    for loop in range(LOOPS):
        total *= trips[loop // MAX_AXES, loop % MAX_AXES]
    inner, thread_points = np.float64(1.0), np.float64(0.0)
    counts[:] = 1.0
    for place in range(LOOPS - 1, -1, -1):
        stage, axis = order[place] // MAX_AXES, order[place] % MAX_AXES
        trip, kind = trips[stage, axis], _annotation(stage, axis, row, ints)
        if thread_points == 0.0 and (kind == THREAD or kind == PARALLEL):
            thread_points = inner
            counts[1, :] = counts[0, :]
        inner *= trip
        spans[axis] = min(spans[axis] * trip, ints[EXTENT + axis])
        at = order[place] * BLOCK_WIDTH
        out[at + LENGTH] = np.log2(trip + 1.0)
        out[at + POSITION] = place
        out[at + TOPDOWN] = np.log2(total * trip / inner + 1.0)
        out[at + BOTTOMUP] = np.log2(inner + 1.0)
        out[at + ANNOTATION + kind] = 1.0
        for read in range(ints[NUM_READS] + 1):
            tensor = read if read < ints[NUM_READS] else MAX_TENSORS - 1
            if trip > 1 or place == LOOPS - 1:
                counts[0, tensor] = _touched(read, spans, ints)
            count = counts[0, tensor]
            to = at + _TOUCHES + tensor * _FIELDS
            out[to + STRIDES] = np.log2(ints[STRIDE + read * MAX_AXES + axis] + 1.0)
            out[to + COUNT] = np.log2(count + 1.0)
            out[to + REUSE] = np.log2(inner / count + 1.0)
            if thread_points > 0.0:
                out[to + THREAD_COUNT] = np.log2(count / counts[1, tensor])
                out[to + THREAD_REUSE] = np.log2(inner / thread_points * counts[1, tensor] / count)


@lean
def _touched(tensor, spans, ints):  # noqa: ANN001, ANN202
    """Count the elements of a tensor's dense box that a part of the iterations touches; `spans` is its length along each axis."""
    size = np.float64(1.0)
    for d in range(ints[NUM_DIMS + tensor]):
        at = PAIRS + (tensor * MAX_DIMS + d) * PAIR_WIDTH
        reach = 1
        for pair in range(at + 1, at + 1 + 2 * ints[at], 2):
            reach += ints[pair + 1] * (spans[ints[pair]] - 1)
        size *= min(reach, ints[VIEW + tensor * MAX_DIMS + d])
    return size
