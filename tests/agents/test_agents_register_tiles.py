"""Register tiles of two axes at once, where no axis alone gains."""

from __future__ import annotations

import dataclasses

import numpy as np

from agents.core.programs import Programs
from agents.hybrids.model_descent import ModelDescentExtended
from gensor_gym import ConstructionGraph, hardware
from gensor_gym.graph.tables.layout import MAX_AXES, TILE

GRAPH = ConstructionGraph("batched_gemm(b=12, m=128, n=128, k=64)", hardware.get("cascade_lake"), "extended")


def test_two_innermost_tiles_differ_and_little_else() -> None:
    programs = Programs(GRAPH)
    row, _ = programs.descend(GRAPH.random_schedule(np.random.default_rng(0)).row)
    rows = programs.other_register_tiles(row)
    innermost = slice(TILE, TILE + MAX_AXES)
    assert len(rows) > 50 and ((rows[:, innermost] != row[innermost]).sum(axis=1) == 2).all()
    assert len(np.unique(rows[:, innermost], axis=0)) == len(rows)
    spatial = {column.first: column for column in programs.columns if not column.is_knob}
    for made in rows[:: len(rows) // 20]:
        for first in np.flatnonzero(made[innermost] != row[innermost]):
            column = spatial[TILE + first]
            there, here = made[column.places], row[column.places]
            same = column.values[column.values[:, 0] == there[0]]
            assert np.abs(np.log2(there / here))[1:].sum() <= np.abs(np.log2(same / here))[:, 1:].sum(axis=1).min() + 1e-12


def test_descents_from_them_find_faster_programs() -> None:
    def found(register_tiles: int) -> float:
        strategy = dataclasses.replace(ModelDescentExtended(restarts=4, structures=2), register_tiles=register_tiles)
        return sum(strategy.construct(GRAPH, np.random.default_rng(seed)).latencies[0] for seed in range(3))

    assert found(8) < found(0)
