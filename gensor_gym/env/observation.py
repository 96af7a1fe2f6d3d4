"""Observation of a schedule: groups of float32 features in a fixed layout.

Features are about 1 in size and clipped to [-LIMIT, LIMIT]. Compiled code writes the dynamic groups at every step. The groups
`operator` and `hardware` are constant in an episode and computed once per task.
"""

from __future__ import annotations

import math

import numpy as np

from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.graph.compiled import lean
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.resources import accumulators_of, registers_of, shared_bytes_of, threads_of, tile_bytes, vectors_along
from gensor_gym.graph.tables.geometry import reduce_product, spatial_product
from gensor_gym.graph.tables.layout import KNOB, LEVEL, MAX_AXES, MAX_LEVELS, TILE, VTHREAD, slot_of
from gensor_gym.graph.tables.tables import (
    FLOOR,
    HORIZON,
    IS_CPU,
    L1_BYTES,
    L2_BYTES,
    REGS_THREAD,
    SHARED_BLOCK,
    THREADS_BLOCK,
    VECTOR_REGS,
)
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.bodies import OBSERVED
from gensor_gym.operators.types import Operator
from gensor_gym.registry import near

LIMIT = 8.0
_TENSORS_SEEN = 3
"""Number of tensors whose strides are among the features: the output and at most two inputs."""

GROUPS: dict[str, int] = {
    "tiles": MAX_LEVELS * MAX_AXES + MAX_AXES,  # log2 of tiles, log2 of virtual threads
    "knobs": len(KNOBS),  # index of the value among the knob's values, scaled to 0..1
    "level": MAX_LEVELS,  # one hot
    "resources": 6,  # fractions of the limits
    "terms": NUM_TERMS + 1,  # log of each term, and of the latency, over the roofline floor
    "remaining": 2,  # steps left: fraction of the horizon, log2
    "operator": MAX_AXES + 2 * _TENSORS_SEEN * MAX_AXES + len(OBSERVED) + 3,
    "hardware": 13,
}
"""Number of features of every group, in the order of the flat observation."""

OFFSETS: dict[str, int] = dict(zip(GROUPS, np.cumsum([0, *GROUPS.values()])[:-1].tolist(), strict=True))
NUM_FEATURES = sum(GROUPS.values())
NUM_DYNAMIC = OFFSETS["operator"]

_TILES, _KNOBS, _LEVEL = OFFSETS["tiles"], OFFSETS["knobs"], OFFSETS["level"]
_RESOURCES, _TERMS, _REMAINING = OFFSETS["resources"], OFFSETS["terms"], OFFSETS["remaining"]
_KNOB_SPAN = np.array([max(1, len(knob.values) - 1) for knob in KNOBS], dtype=np.float64)
_NUM_KNOBS = len(KNOBS)
_LEAST = 1e-3
_LOG_LEAST = math.log10(_LEAST)


@lean
def fill_dynamic(row, latency, terms, remaining, ints, floats, out):  # noqa: ANN001, ANN201
    """Write all features that change from step to step into the start of `out` [NUM_DYNAMIC or more].

    They belong to one schedule, int32 [ROW]; `latency` and `terms` are its time by the model and the terms of that time.
    """
    fill_schedule(row, ints, out)
    for t in range(NUM_TERMS):
        share = math.log10(terms[t] / floats[FLOOR] + _LEAST) if terms[t] > 0.0 else _LOG_LEAST  # many terms are 0
        out[_TERMS + t] = max(-LIMIT, min(LIMIT, share))
    out[_TERMS + NUM_TERMS] = max(-LIMIT, min(LIMIT, math.log10(latency / floats[FLOOR])))
    out[_REMAINING] = remaining / ints[HORIZON]
    out[_REMAINING + 1] = math.log2(remaining + 1.0) / 8.0


@lean
def fill_schedule(row, ints, out):  # noqa: ANN001, ANN201
    """Write those features of a schedule that do not need the model's time: tiles, knobs, level, resources."""
    for axis in range(MAX_AXES):
        _fill_tiles(row, axis, out)
    for k in range(_NUM_KNOBS):
        out[_KNOBS + k] = row[KNOB + k] / _KNOB_SPAN[k]
    for level in range(MAX_LEVELS):
        out[_LEVEL + level] = 1.0 if row[LEVEL] == level else 0.0
    fill_resources(row, ints, out)


@lean
def _fill_tiles(row, axis, out):  # noqa: ANN001, ANN201
    """Write log2 of the tile sizes and virtual threads of one axis. A tile equal to the next inner tile reuses its logarithm."""
    inside, feature = 1, 0.0
    for level in range(MAX_LEVELS):
        tile = row[TILE + level * MAX_AXES + axis]
        if tile != inside:
            inside, feature = tile, math.log2(tile) / 8.0
        out[_TILES + level * MAX_AXES + axis] = feature
    threads = row[VTHREAD + axis]
    out[_TILES + MAX_LEVELS * MAX_AXES + axis] = math.log2(threads) / 4.0 if threads > 1 else 0.0


@lean
def fill_resources(row, ints, out):  # noqa: ANN001, ANN201
    """Write the six features of the group `resources`, which say how much of the hardware a program uses.

    CPU: vector registers, bytes of the L1 tile and of the task tile, as fractions of the limits; log code size; two zeros. GPU:
    threads, registers and shared memory as fractions of the limits; log code size; threads in a last, partial warp divided by 32;
    log threads.
    """
    for i in range(6):
        out[_RESOURCES + i] = 0.0
    if ints[IS_CPU] == 1:
        accumulators = accumulators_of(row, ints)
        out[_RESOURCES] = (accumulators + vectors_along(row, ints) + 1) / ints[VECTOR_REGS]
        out[_RESOURCES + 1] = min(LIMIT, tile_bytes(row, 1, ints) / ints[L1_BYTES])
        out[_RESOURCES + 2] = min(LIMIT, tile_bytes(row, 2, ints) / ints[L2_BYTES])
        out[_RESOURCES + 3] = math.log2(1.0 + accumulators * reduce_product(row, 0, ints)) / 9.0
        return
    threads = threads_of(row, ints)
    out[_RESOURCES] = threads / ints[THREADS_BLOCK]
    out[_RESOURCES + 1] = registers_of(row, ints) / ints[REGS_THREAD]
    out[_RESOURCES + 2] = shared_bytes_of(row, ints) / ints[SHARED_BLOCK]
    out[_RESOURCES + 3] = math.log2(1.0 + spatial_product(row, 0, ints) * reduce_product(row, 0, ints)) / 12.0
    out[_RESOURCES + 4] = threads % 32 / 32.0
    out[_RESOURCES + 5] = math.log2(threads) / 10.0


def static_features(op: Operator, hardware: Hardware) -> np.ndarray:
    """Return the features that stay constant in an episode, float32 [NUM_FEATURES - NUM_DYNAMIC].

    They are the groups `operator` and `hardware`.
    """
    features = np.concatenate([_operator_features(op), _hardware_features(hardware)])
    return np.clip(features, -LIMIT, LIMIT).astype(np.float32)


def _operator_features(op: Operator) -> np.ndarray:
    """Return the features of group `operator`: log extents, strides, body, sizes.

    Each slot has a log extent. For each tensor and slot, one feature says whether the stride is not 0, another whether it is 1.
    The body is one-hot. The sizes are log operations, log compulsory bytes and log intensity.
    """
    slots = [slot_of(a, len(op.spatial)) for a in range(len(op.axes))]
    extents, moves = np.zeros(MAX_AXES), np.zeros((2, _TENSORS_SEEN, MAX_AXES))
    for slot, extent in zip(slots, op.extents, strict=True):
        extents[slot] = math.log2(extent) / 8.0
    for t, access in enumerate((op.write, *op.reads)[:_TENSORS_SEEN]):
        for slot, stride in zip(slots, access.axis_strides(), strict=True):
            moves[0, t, slot] = stride != 0
            moves[1, t, slot] = stride == 1
    body = [float(op.body == body) for body in OBSERVED]
    scale = [math.log2(op.flops) / 32.0, math.log2(op.compulsory_bytes) / 32.0, math.log2(op.intensity + 1e-3) / 8.0]
    return np.concatenate([extents, moves.ravel(), body, scale])


def _hardware_features(hw: Hardware) -> np.ndarray:
    levels = {level.name: level for level in hw.memory}
    dram, l2 = levels["dram"], levels["l2"]
    inner = levels.get("l1", levels.get("shared", l2))
    logs = [
        hw.peak_of("float32") / 1e12, dram.bandwidth / 1e12, l2.bandwidth / 1e12, inner.bandwidth / 1e12, inner.capacity / 2**16,
        l2.capacity / 2**20, hw.units, hw.lanes, hw.clock / 1e9, hw.launch_overhead / 1e-6, hw.threads_per_unit / 1024 + 1,
        hw.peak_of("float32") / dram.bandwidth,
    ]  # fmt: skip
    return np.array([hw.kind == "cpu", *(math.log2(v) / 4.0 for v in logs)], dtype=np.float64)


def group_slices(names: tuple[str, ...] | list[str] | None) -> dict[str, slice]:
    """Return the slice of the flat observation that each group takes, for the named groups or for all.

    ValueError names an unknown group.
    """
    chosen = list(GROUPS) if names is None else list(names)
    unknown = [name for name in chosen if name not in GROUPS]
    if unknown or not chosen:
        raise ValueError(f"no observation group {unknown or 'chosen'}; groups are {list(GROUPS)}{near(unknown, GROUPS)}")
    return {name: slice(OFFSETS[name], OFFSETS[name] + GROUPS[name]) for name in GROUPS if name in chosen}
