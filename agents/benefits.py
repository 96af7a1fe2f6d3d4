"""Benefits of primitives, from which the traverser takes its transition probabilities. Compiled.

Gensor states that the benefit of tiling compares memory traffic with memory footprint, that of caching latency and
bandwidth of two memory levels, and that of virtual threads bank conflicts; the formulas were not available to us. What
stands here is our reconstruction: Roller's score S = (Q(T) - Q(T')) / (F(T') - F(T)) in ratio form for tiling, the ratio of
transfer times for caching, the ratio of shared-memory wavefronts for virtual threads; and, as an option of its own, the
ratio of the model's latencies. The exponents are configuration; how they were chosen stands in `docs/design.md`.
"""

from __future__ import annotations

from gensor_gym.cost.gpu_lanes import shared_wavefronts
from gensor_gym.graph.compiled import compiled
from gensor_gym.graph.layout import LEVEL, MAX_AXES, TILE
from gensor_gym.graph.resources import footprint, fragment, reduce_product, spatial_product, tile_bytes
from gensor_gym.graph.tables import (
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


@compiled
def waste(row, level, ints):  # noqa: ANN001, ANN201
    """Padded over real iteration points of the tiles of a level, >= 1."""
    factor = 1.0
    for axis in range(ints[FIRST_SPATIAL], ints[END_REDUCE]):
        tile = row[TILE + level * MAX_AXES + axis]
        extent = ints[EXTENT + axis]
        factor *= (extent + tile - 1) // tile * tile / extent
    return factor


@compiled
def traffic(row, ints):  # noqa: ANN001, ANN201
    """Q: bytes moved into the level under construction per real iteration point."""
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
    """F: elements (registers) or bytes (caches) that the level under construction holds."""
    level = row[LEVEL]
    if level > 0:
        return tile_bytes(row, level, ints) * 1.0
    total = spatial_product(row, 0, ints) * 1.0
    for t in range(ints[NUM_READS]):
        total += fragment(row, t, ints)
    return total


@compiled
def cache_benefit(row, ints, floats):  # noqa: ANN001, ANN201
    """(L_low + S / B_low) / (L_high + S / B_high) for the tile's S bytes between the next level out and this one."""
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
    """Shared-memory wavefronts per reduction point of a warp; 1 where nothing is staged or there are no threads yet."""
    if ints[IS_CPU] == 1 or row[LEVEL] == 0:
        return 1.0
    total = 0.0
    for t in range(ints[NUM_READS]):
        if ints[STAGED + t] == 1:
            total += shared_wavefronts(row, t, ints)
    return max(total, 1.0)
