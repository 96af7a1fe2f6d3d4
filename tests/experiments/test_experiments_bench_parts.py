"""Parts of a step are timed on states of episodes, by the functions that a step is made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.benches.environment import parts
from experiments.benches.lines import Lines
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.terms import NUM_TERMS, TERMS
from gensor_gym.graph.schedule import Schedule

TASK = {"operator": "conv2d(n=1, c=8, h=14, w=14, k=8, r=3, s=3, padding=1)", "hardware": "cascade_lake", "space": "extended"}


def states(count: int) -> tuple[ConstructionGraph, np.ndarray]:
    graph, rng = ConstructionGraph(*TASK.values()), np.random.default_rng(0)
    return graph, graph.stack([graph.random_schedule(rng) for _ in range(count)])


def test_parts_are_those_of_the_graph() -> None:
    graph, rows = states(16)
    ints, floats = graph.tables.ints, graph.tables.floats
    terms, latencies = np.zeros((16, NUM_TERMS)), np.zeros(16)
    parts._model(rows, ints, floats, graph.room(), terms, latencies)
    np.testing.assert_array_equal(latencies, graph.latencies(rows))
    assert dict(zip(TERMS, terms[3], strict=True)) == graph.terms(Schedule(rows[3]))


def test_a_line_has_all_parts(tmp_path: Path) -> None:
    emit = Lines(tmp_path / "env.jsonl", "env")
    parts.run(*states(8), TASK, 3, emit)
    (row,) = emit.rows
    for part in ("model_us", "mask_us", "observation_us"):
        times: dict = row[part]  # type: ignore[assignment]
        assert 0.0 <= times["low"] <= times["median"] <= times["high"]
    assert row["num_envs"] == 8 and row["hardware"] == "cascade_lake"
