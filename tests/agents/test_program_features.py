"""Features of programs by hand: the model's parts, tiles, padding, and what a tile fills of a cache."""

from __future__ import annotations

import numpy as np

from agents.hybrids.program_features import features_of
from gensor_gym import ConstructionGraph
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import LEVEL, MAX_AXES, TILE, UNROLL

GRAPH = ConstructionGraph("gemm(m=40, n=48, k=20)", "cascade_lake", "extended")
AXES = [3, 4, 5]
"""Slots of m, n and k."""


def test_features_of_a_product_by_hand() -> None:
    """Tiles 4x16x4 in 8x16x20 in 16x48x20: 40 rows take three tiles of 16, that is 48."""
    row = GRAPH.initial().row.copy()
    for level, sizes in enumerate(([4, 16, 4], [8, 16, 20], [16, 48, 20], [16, 48, 20])):
        row[[TILE + level * MAX_AXES + axis for axis in AXES]] = sizes
    row[LEVEL], row[UNROLL] = 2, 1
    schedule = Schedule(row)
    assert GRAPH.is_legal(schedule)
    (found,) = features_of(GRAPH, schedule.row[None])
    parts = iter(np.split(found, np.cumsum([1 + NUM_TERMS, len(KNOBS), 3 * MAX_AXES, 3 * MAX_AXES, 3, 6, 2, 2, 5, MAX_AXES])))
    model, knobs, tiles, trips, padding, areas, rest, vectors, held, twos = (next(parts) for _ in range(10))
    latency, floor = GRAPH.latency(schedule), roofline_floor(GRAPH.operator, GRAPH.hardware)
    np.testing.assert_allclose(model[0], np.log(latency / floor), rtol=1e-5)
    terms = np.array(list(GRAPH.terms(schedule).values()))
    np.testing.assert_allclose(model[1:], np.log(np.maximum(terms / latency, 1e-4)), rtol=1e-4)
    assert knobs.tolist() == [float(knob.values[schedule.row[knob.place]]) for knob in KNOBS]
    np.testing.assert_allclose(tiles.reshape(3, -1)[:, AXES], np.log2([[4, 16, 4], [8, 16, 20], [16, 48, 20]]), rtol=1e-6)
    np.testing.assert_allclose(trips.reshape(3, -1)[:, AXES], np.log2([[2, 1, 5], [2, 3, 1], [3, 1, 1]]), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(padding, np.log2([1.0, 1.0, 48 / 40]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(areas, np.log2([64, 128, 768, 4, 20, 20]), rtol=1e-6)
    assert rest.tolist() == [4 / 16, 0.0] and vectors.tolist() == [4.0, 1.0] and twos[AXES].tolist() == [3.0, 4.0, 2.0]
    l1 = next(level.capacity for level in GRAPH.hardware.memory if level.name == "l1")
    np.testing.assert_allclose(held[0], np.log2(4 * (4 * 4 + 4 * 16 + 4 * 16) / l1), rtol=1e-3)
