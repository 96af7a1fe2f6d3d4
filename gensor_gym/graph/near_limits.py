"""Random programs close to the hardware's limits, legal and barely illegal. Compiled.

A task's fingerprint, which shows changes of the rules, tests the rules with them. Almost no random combination of tiles is
close to one limit and within all others. So sizes are drawn axis by axis, each within a bound on their product: register tiles up
to somewhat more elements than registers hold, outer tiles up to somewhat more threads than a block may have.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.graph.compiled import compiled, lean
from gensor_gym.graph.tables.layout import LEVEL, MAX_AXES, MAX_LEVELS, SPATIAL_SLOTS, TILE
from gensor_gym.graph.tables.tables import NUM_LEVELS, SIZE_START

ELEMENTS = 512
"""How many times larger than in the first program a register tile may be over the spatial axes. Every other pair of programs has
half of this limit. A thread of a GPU has 255 registers, a CPU core 31 vectors of 16."""
POINTS = 16
"""How many times larger than in the first program a register tile may be over the reduce axes. More unrolled points would exceed
the limit on code size."""
AROUND = 2048
"""How many times larger than the tile of the level below a tile may be, over spatial and over reduce axes."""
DRAWS = 1 + MAX_LEVELS * MAX_AXES
"""Number of random numbers from which one program is made."""


def near_limits(first: np.ndarray, draws: np.ndarray, ints: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Make B random well-formed programs near the hardware's limits, int32 [B, ROW], legal or not.

    `draws` float64 [B, DRAWS] in [0, 1) are the random numbers. The program `first` int32 [ROW] gives knobs and virtual
    threads, and a divisor of each tile. Every other program is a register tile only, without outer levels.
    """
    rows = np.repeat(first[None], len(draws), axis=0).astype(np.int32)
    _fill(rows, draws, ints, sizes)
    return rows


@compiled
def _fill(rows, draws, ints, sizes):  # noqa: ANN001, ANN202
    """Write random tiles into every program, level by level, beginning at a random axis."""
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
    """Return a size of an axis that is a multiple of `below` and at most `most` times as large, chosen by `draw` in [0, 1).

    If no size is, return `below`.
    """
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


