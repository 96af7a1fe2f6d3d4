"""Every legal schedule of a task's space, streamed in batches.

An odometer over choices: per axis a chain of sizes (each a multiple of the one inside) with a virtual-thread count, and
the usable knobs where the space can move them. Chains are listed once; the product is walked by number.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gensor_gym.graph.actions import KNOB_UP, VTHREAD_UP
from gensor_gym.graph.compiled import compiled
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.ladder import divisors
from gensor_gym.graph.layout import KNOB, LEVEL, MAX_AXES, MAX_LEVELS, NUM_KNOBS, ROW, SPATIAL_SLOTS, TILE, VTHREAD
from gensor_gym.graph.rules import fits
from gensor_gym.graph.tables import ALLOWED, EXTENT, IS_CPU, KNOB_BITS, NUM_LEVELS, SIZE_START


def enumerate_rows(ints: np.ndarray, sizes: np.ndarray, start: np.ndarray, batch: int) -> Iterator[np.ndarray]:
    """Rows int32 [<= batch, ROW] of all legal schedules with every level opened."""
    choices = axis_choices(ints, sizes)
    knobs = knob_choices(ints)
    counts = np.array([len(c) for c in choices] + [len(k) for k in knobs], dtype=np.int64)
    total = count_schedules(ints, sizes)
    chains = np.concatenate(choices)
    offsets = np.cumsum([0, *(len(c) for c in choices)]).astype(np.int64)
    values = np.array([v for knob in knobs for v in knob], dtype=np.int64)
    knob_offsets = np.cumsum([0, *(len(k) for k in knobs)]).astype(np.int64)
    moving = np.array(moved_knobs(ints), dtype=np.int64)
    base = start.copy()
    base[LEVEL] = ints[NUM_LEVELS] - 1
    at = 0
    while at < total:
        rows = np.empty((batch, ROW), dtype=np.int32)
        filled, at = _fill(base, at, total, counts, chains, offsets, values, knob_offsets, moving, ints, rows)
        if filled:
            yield rows[:filled]


def count_schedules(ints: np.ndarray, sizes: np.ndarray) -> int:
    """Candidates that `enumerate_rows` walks over, before resources are checked."""
    total = 1
    for n in [len(c) for c in axis_choices(ints, sizes)] + [len(k) for k in knob_choices(ints)]:
        total *= n
    return total


def axis_choices(ints: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """Per axis slot, all (tile of every level.., vthread) int32 [C, L + 1]."""
    return [np.array(_chains(ints, sizes, axis), dtype=np.int32) for axis in range(MAX_AXES)]


def knob_choices(ints: np.ndarray) -> list[list[int]]:
    """Usable value indices of every knob that the space can move."""
    return [[i for i in range(len(KNOBS[k].values)) if ints[KNOB_BITS + k] >> i & 1] for k in moved_knobs(ints)]


def moved_knobs(ints: np.ndarray) -> list[int]:
    """Indices of the knobs that the space has actions for."""
    return np.flatnonzero(ints[ALLOWED + KNOB_UP : ALLOWED + KNOB_UP + NUM_KNOBS]).tolist()


def _chains(ints: np.ndarray, sizes: np.ndarray, axis: int) -> list[list[int]]:
    """Non-decreasing chains of sizes in which each is a multiple of the one before, times virtual threads."""
    ladder = sizes[ints[SIZE_START + axis] : ints[SIZE_START + axis + 1]].tolist()
    chains: list[list[int]] = [[]]
    for _ in range(int(ints[NUM_LEVELS])):
        chains = [[*chain, size] for chain in chains for size in ladder if not chain or size % chain[-1] == 0]
    virtual = (
        ints[IS_CPU] == 0 and axis < SPATIAL_SLOTS and ints[ALLOWED + VTHREAD_UP + axis] and ints[EXTENT + axis] > 1
    )
    full: list[list[int]] = []
    for chain in chains:
        padded = chain + [chain[-1]] * (MAX_LEVELS - len(chain))
        threads = divisors(chain[0]) if virtual else (1,)
        full.extend([*padded, v] for v in threads)
    return full


@compiled
def _fill(base, at, total, counts, chains, offsets, values, knob_offsets, moving, ints, rows):  # noqa: ANN001, ANN202
    """Decode numbers from `at` on into rows until the batch is full; keep those that fit. Returns (rows kept, next)."""
    filled = 0
    while at < total and filled < rows.shape[0]:
        row = rows[filled]
        for i in range(ROW):
            row[i] = base[i]
        left = at
        at += 1
        for axis in range(MAX_AXES):
            chain = chains[offsets[axis] + left % counts[axis]]
            left //= counts[axis]
            for level in range(MAX_LEVELS):
                row[TILE + level * MAX_AXES + axis] = chain[level]
            row[VTHREAD + axis] = chain[MAX_LEVELS]
        for k in range(moving.shape[0]):
            row[KNOB + moving[k]] = values[knob_offsets[k] + left % counts[MAX_AXES + k]]
            left //= counts[MAX_AXES + k]
        if fits(row, ints):
            filled += 1
    return filled, at
