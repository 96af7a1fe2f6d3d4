"""Features of programs for a learned model of time: float32, with one layout for every operator and machine.

Most features are logarithms, so that trees and small networks see ratios. Groups, in order: the model's latency over the roofline
floor and each term's share of the latency, values of knobs, tiles, trip counts, padding, sizes of tiles by level, remainders of
vectors, registers, bytes of tiles over capacities of caches, powers of two in the extents (rows that share cache sets), and the
features of operator and machine in an observation (`gensor_gym.env.observation`).
"""

from __future__ import annotations

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.env.observation import static_features
from gensor_gym.graph.compiled import compiled, plain
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.resources import accumulators_of, tile_bytes, vectors_along
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, MAX_LEVELS, SPATIAL_SLOTS, TILE, slot_of
from gensor_gym.graph.tables.tables import IS_CPU

LEAST = 1e-4
"""Smallest share of a model term in the latency that features distinguish; smaller shares are raised to it."""
LEVELS = MAX_LEVELS - 1
"""Number of tile levels in the features. The last level is left out, because no machine has that many levels yet."""
HELD = ((0, "l1"), (1, "l1"), (1, "l2"), (2, "l2"), (2, "l3"))
"""Pairs (level of a tile, cache): the bytes of the tile are compared with the capacity of the cache."""
MOST_TWOS = 10
"""Maximum number of factors of two that are counted in an extent. With more, rows share all sets of a cache anyway."""
VERSION = 1
"""Version of the layout of features. Raise it with every change of the layout."""
_VALUES = np.zeros((len(KNOBS), max(len(knob.values) for knob in KNOBS)))
for _place, _knob in enumerate(KNOBS):
    _VALUES[_place, : len(_knob.values)] = [float(value) for value in _knob.values]


def features_of(graph: ConstructionGraph, rows: np.ndarray) -> np.ndarray:
    """Compute the features float32 [B, F] of encoded programs `rows` int32 [B, ROW], which must be legal."""
    op, hw = graph.operator, graph.hardware
    found = graph.terms_of(rows)
    seconds, terms = found[:, 0], found[:, 1:]
    extents = np.ones(MAX_AXES)
    for axis, extent in enumerate(op.extents):
        extents[slot_of(axis, len(op.spatial))] = extent
    tiles = rows[:, TILE : TILE + LEVELS * MAX_AXES].reshape(-1, LEVELS, MAX_AXES).astype(np.float64)
    outer = np.ceil(extents / tiles[:, -1:])
    trips = np.concatenate([tiles[:, 1:] / tiles[:, :-1], outer], axis=1)
    padding = (np.ceil(extents / tiles) * tiles / extents).prod(axis=2)
    sizes = np.concatenate([tiles[:, :, :SPATIAL_SLOTS].prod(axis=2), tiles[:, :, SPATIAL_SLOTS:].prod(axis=2)], axis=1)
    logs = np.log2(np.concatenate([tiles.reshape(len(rows), -1), trips.reshape(len(rows), -1), padding, sizes], axis=1))
    floor = max(roofline_floor(op, hw), 1e-12)
    first = np.log(np.column_stack([seconds / floor, np.maximum(terms / seconds[:, None], LEAST)]))
    knobs = _VALUES[np.arange(len(KNOBS)), rows[:, KNOB : KNOB + len(KNOBS)]]
    rest = tiles[:, 0, SPATIAL_SLOTS - 2 : SPATIAL_SLOTS] % hw.lanes / hw.lanes
    held = np.empty((len(rows), 2 + len(HELD)))
    fill_held(plain(rows), graph.tables.ints, held)
    capacities = {level.name: level.capacity for level in hw.memory}
    held[:, 2:] = np.log2(held[:, 2:] / [capacities.get(cache, capacities["l2"]) for _, cache in HELD] + 1e-6)
    twos = [min(MOST_TWOS, (int(extent) & -int(extent)).bit_length() - 1) for extent in extents]
    own = [*twos, *static_features(op, hw), float(op.frozen), float(len(op.epilogue)), np.log(floor), np.log(op.points)]
    return np.concatenate([first, knobs, logs, rest, held, np.tile(own, (len(rows), 1))], axis=1).astype(np.float32)


@compiled
def fill_held(rows, ints, out):  # noqa: ANN001, ANN201
    """Compute features of what registers and caches hold, `out` float64 [B, 7], for encoded programs `rows` int32 [B, ROW].

    These are accumulators, vectors per row of a register tile, and the bytes of the tiles that `HELD`
    names. A GPU's programs have no vectors to count.
    """
    for b in range(rows.shape[0]):
        row = rows[b]
        out[b, 0] = accumulators_of(row, ints) if ints[IS_CPU] == 1 else 0
        out[b, 1] = vectors_along(row, ints) if ints[IS_CPU] == 1 else 0
        inner, middle, outer = tile_bytes(row, 0, ints), tile_bytes(row, 1, ints), tile_bytes(row, 2, ints)
        out[b, 2], out[b, 3], out[b, 4], out[b, 5], out[b, 6] = inner, middle, middle, outer, outer
