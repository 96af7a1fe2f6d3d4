"""Programs of which many stand near the limits of the hardware: legal ones and ones that are just not. Compiled.

Of all combinations of tiles hardly any is near a limit in one resource and within the others. Here sizes are drawn axis after
axis, each among those that leave the product of all within a bound: of register tiles some elements more than registers can
hold, of the tiles around them some more threads than a block may have.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.graph.compiled import compiled, lean
from gensor_gym.graph.tables.layout import LEVEL, MAX_AXES, MAX_LEVELS, SPATIAL_SLOTS, TILE
from gensor_gym.graph.tables.tables import NUM_LEVELS, SIZE_START

ELEMENTS = 512
"""Register tiles have at most so many times the elements of the program that is begun with along spatial axes; of every
other pair of programs half as many: a thread of a GPU has 255 registers, a core of a CPU 31 vectors of 16."""
POINTS = 16
"""The same along reduce axes: with more of them unrolled the body is too long."""
AROUND = 2048
"""A tile of a level has at most so many of the level below, along either kind of axes."""
DRAWS = 1 + MAX_LEVELS * MAX_AXES
"""Numbers that one program is made of."""


def near_limits(first: np.ndarray, draws: np.ndarray, ints: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Rows int32 [B, ROW] of `draws` float64 [B, DRAWS] in [0, 1), well formed, legal or not.

    Tiles are multiples of those of `first`, whose knobs and virtual threads they keep. Every other one is a register tile
    alone, nothing built on it.
    """
    rows = np.repeat(first[None], len(draws), axis=0).astype(np.int32)
    _fill(rows, draws, ints, sizes)
    return rows


@compiled
def _fill(rows, draws, ints, sizes):  # noqa: ANN001, ANN202
    """Tiles of every row, level by level, axes in an order that begins anywhere."""
    for b in range(rows.shape[0]):
        row, at = rows[b], 1
        levels = 1 if b % 2 == 0 else ints[NUM_LEVELS]
        offset = int(draws[b, 0] * MAX_AXES)
        for level in range(levels):
            spatial, reduce = (ELEMENTS >> (b // 2 % 2), POINTS) if level == 0 else (AROUND, AROUND)
            for i in range(MAX_AXES):
                axis = (i + offset) % MAX_AXES
                below = row[TILE + level * MAX_AXES + axis]
                size = _drawn(draws[b, at], below, spatial if axis < SPATIAL_SLOTS else reduce, axis, ints, sizes)
                at += 1
                for outer in range(level, MAX_LEVELS):
                    row[TILE + outer * MAX_AXES + axis] = size
                if axis < SPATIAL_SLOTS:
                    spatial = max(1, spatial // (size // below))
                else:
                    reduce = max(1, reduce // (size // below))
        row[LEVEL] = levels - 1


@lean
def _drawn(draw, below, most, axis, ints, sizes):  # noqa: ANN001, ANN202
    """One of the sizes of an axis that are multiples of `below`, at most `most` times it; `below` where there is none."""
    count = 0
    for i in range(ints[SIZE_START + axis], ints[SIZE_START + axis + 1]):
        count += sizes[i] % below == 0 and sizes[i] <= below * most
    chosen = int(draw * count)
    for i in range(ints[SIZE_START + axis], ints[SIZE_START + axis + 1]):
        if sizes[i] % below == 0 and sizes[i] <= below * most:
            if chosen == 0:
                return sizes[i]
            chosen -= 1
    return np.int64(below)
