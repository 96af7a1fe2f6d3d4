"""Compute the benefits of single primitives in compiled code; `walk.py` turns them into transition probabilities.

Gensor states that the benefit of tiling compares memory traffic with memory footprint, the benefit of caching compares latency
and bandwidth of two memory levels, and the benefit of virtual threads compares bank conflicts. The formulas were not available to
us.

We reconstruct tiling by Roller's score S = (Q(T) - Q(T')) / (F(T') - F(T)) of the traffic Q and footprint F of a tile before (T)
and after (T') a move: either as ratios Q(T) / Q(T') and F(T) / F(T'), each with an exponent, or as S itself, with differences
divided by Q(T) and F(T). The benefit of caching is the ratio of transfer times, and the benefit of virtual threads is the ratio
of shared-memory wavefronts. The benefits of tiling, virtual threads and knobs can be multiplied by the ratio of the model's
latencies. The exponents are configuration; `docs/design.md` says how they were chosen.
"""

from __future__ import annotations

from gensor_gym.cost.gpu.lanes import shared_wavefronts
from gensor_gym.graph.compiled import compiled
from gensor_gym.graph.resources import tile_bytes
from gensor_gym.graph.tables.geometry import footprint, fragment, reduce_product, spatial_product
from gensor_gym.graph.tables.layout import LEVEL, MAX_AXES, TILE
from gensor_gym.graph.tables.tables import (
    DRAM_BW,
    DRAM_LATENCY,
    END_REDUCE,
    EXTENT,
    FIRST_SPATIAL,
    IS_CPU,
    ITEM,
    L1_BW,
    L2_BW,
    L2_LATENCY,
    NUM_READS,
    SHARED_LATENCY,
    STAGED,
    UNITS,
)

LEAST = 0.01
"""Smallest value of Roller's score, so that a move that saves no traffic keeps a probability above 0."""


@compiled
def waste(row, level, ints):  # noqa: ANN001, ANN201
    """Return the ratio (at least 1) of padded to real iteration points for the tiles of a level."""
    factor = 1.0
    for axis in range(ints[FIRST_SPATIAL], ints[END_REDUCE]):
        tile = row[TILE + level * MAX_AXES + axis]
        extent = ints[EXTENT + axis]
        factor *= (extent + tile - 1) // tile * tile / extent
    return factor


@compiled
def traffic(row, ints):  # noqa: ANN001, ANN201
    """Return the traffic Q of an encoded program: bytes moved into the current level per real iteration point."""
    level = row[LEVEL]
    total = 0.0
    for t in range(ints[NUM_READS]):
        moved = fragment(row, t, ints) if level == 0 else footprint(row, t, level, ints)
        total += moved * ints[ITEM + t]
    points = spatial_product(row, level, ints)
    if level > 0:
        points *= reduce_product(row, level, ints)
    return total / points * waste(row, level, ints)


@compiled
def occupied(row, ints):  # noqa: ANN001, ANN201
    """Return the footprint F of the current level's tile: elements in registers, or bytes in a cache."""
    level = row[LEVEL]
    if level > 0:
        return tile_bytes(row, level, ints) * 1.0
    total = spatial_product(row, 0, ints) * 1.0
    for t in range(ints[NUM_READS]):
        total += fragment(row, t, ints)
    return total


@compiled
def difference_of(less, more):  # noqa: ANN001, ANN201
    """Return Roller's score of a move that divides traffic by `less` and multiplies the footprint by `more` >= 1.

    The score is clipped to the range from 0.01 (`LEAST`) to 100.
    """
    saved, held = 1.0 - 1.0 / less, more - 1.0
    if held == 0.0:
        return 1.0 if saved == 0.0 else 1.0 / LEAST if saved > 0.0 else LEAST
    return min(max(saved / held, LEAST), 1.0 / LEAST)


@compiled
def difference_score(row, result, ints):  # noqa: ANN001, ANN201
    """Return Roller's score of the move from encoded program `row` to `result`, which changes a tile.

    For a growing tile it is (Q(T) - Q(T')) / Q(T) divided by (F(T') - F(T)) / F(T), with traffic Q and footprint F. Roller never
    shrinks a tile; the score of such a move is the reciprocal of the score of the reverse move. Scores are clipped to 0.01
    (`LEAST`: no traffic is saved) and 100 (the footprint does not grow).
    """
    before, after = occupied(row, ints), occupied(result, ints)
    if before > after:
        return 1.0 / difference_of(traffic(result, ints) / traffic(row, ints), before / after)
    return difference_of(traffic(row, ints) / traffic(result, ints), after / before)


@compiled
def cache_benefit(row, ints, floats):  # noqa: ANN001, ANN201
    """Return the benefit of caching the current tile: its loading time from the outer memory level over that from the inner.

    Loading S bytes takes L + S / B, with the latency L and the bandwidth B of the level.
    """
    size = tile_bytes(row, row[LEVEL], ints) * 1.0
    if row[LEVEL] == 0:
        low = floats[L2_LATENCY] + size * ints[UNITS] / floats[L2_BW]
        high = floats[SHARED_LATENCY] + size * ints[UNITS] / floats[L1_BW]
        return low / high
    low = floats[DRAM_LATENCY] + size * ints[UNITS] / floats[DRAM_BW]
    high = floats[L2_LATENCY] + size * ints[UNITS] / floats[L2_BW]
    return low / high


@compiled
def conflicts(row, ints):  # noqa: ANN001, ANN201
    """Return the number of shared-memory wavefronts of a warp per reduction point, a measure of bank conflicts.

    It is 1 on a CPU, without staged reads, and while registers are tiled, because threads are not known yet.
    """
    if ints[IS_CPU] == 1 or row[LEVEL] == 0:
        return 1.0
    total = 0.0
    for t in range(ints[NUM_READS]):
        if ints[STAGED + t] == 1:
            total += shared_wavefronts(row, t, ints)
    return max(total, 1.0)
