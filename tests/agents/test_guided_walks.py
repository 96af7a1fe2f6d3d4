"""Walks by any model of time are those of the traverser: cold ones take the largest benefit, by the model that they are given."""

from __future__ import annotations

import numpy as np
import pytest

from agents import get_strategy
from agents.gensor import walk
from agents.gensor.guided_walks import guided_walks
from agents.gensor.markov import MarkovExtended
from gensor_gym import ConstructionGraph
from gensor_gym.graph.actions import CACHE, UNCACHE
from gensor_gym.graph.tables.layout import UNROLL

GRAPH = ConstructionGraph("gemm(m=48, n=64, k=40)", "cascade_lake", "extended")


def greedy(row: np.ndarray, options: np.ndarray, steps: int) -> float:
    """Least seconds that a walk sees which always takes the primitive of the largest benefit, by the analytic model."""
    least, at_level, ints, floats = np.inf, 0, GRAPH.tables.ints, GRAPH.tables.floats
    for _ in range(steps):
        actions = np.flatnonzero(GRAPH.action_masks(row[None])[0])[1:]
        results, _ = GRAPH.transitions(np.repeat(row[None], len(actions), axis=0), actions)
        now, after = GRAPH.latencies(row[None])[0], GRAPH.latencies(results)
        least = min(least, after.min())
        gains = [
            walk.log_benefit(a, now, t, row, result, at_level, ints, floats, options)
            for a, t, result in zip(actions, after, results, strict=True)
        ]
        best = int(np.argmax(gains))
        row, at_level = results[best], 0 if actions[best] in (CACHE, UNCACHE) else at_level + 1
    return float(least)


def test_cold_walks_take_the_largest_benefit() -> None:
    options = MarkovExtended().options(12, 1e-4)
    options[walk.FINISH] = 1e-4
    start = GRAPH.initial().row
    rows, seconds = guided_walks(GRAPH, start[None], GRAPH.latencies, options, np.random.default_rng(0))
    assert seconds.min() == greedy(start, options, 12) < 0.1 * GRAPH.latency(GRAPH.initial())
    np.testing.assert_array_equal(seconds, GRAPH.latencies(np.ascontiguousarray(rows)))


def test_walks_do_not_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    actions, plain = set[int](), ConstructionGraph.transitions

    def spied(graph: ConstructionGraph, rows: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        actions.update(action.tolist())
        return plain(graph, rows, action)

    monkeypatch.setattr(ConstructionGraph, "transitions", spied)
    start = GRAPH.initial().row
    guided_walks(GRAPH, start[None], GRAPH.latencies, MarkovExtended().options(2, 0.5), np.random.default_rng(0))
    assert set(np.flatnonzero(GRAPH.action_masks(start[None])[0])[1:]) <= actions and 0 not in actions


def test_another_model_leads_elsewhere() -> None:
    """A model that likes large register tiles is followed there."""
    options, starts = MarkovExtended().options(24, 0.5), np.repeat(GRAPH.initial().row[None], 6, axis=0)

    def predict(rows: np.ndarray) -> np.ndarray:
        return 1.0 / rows[:, :8].astype(float).prod(axis=1)

    found = [guided_walks(GRAPH, starts, of, options, np.random.default_rng(1)) for of in (predict, GRAPH.latencies)]
    for rows, _ in found:
        assert GRAPH.fits(np.ascontiguousarray(rows)).all() and len({row.tobytes() for row in rows}) == len(rows)
    largest = [1.0 / predict(rows).min() for rows, _ in found]
    assert largest[0] > largest[1]


@pytest.mark.parametrize("settings", [{"walkers": 3, "steps": 6}, {"refined": 2, "descents": 2}])
def test_a_learned_model_of_time_goes_beyond_what_the_search_proposed(settings: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model here knows one thing: unrolling is bad."""
    strategy = get_strategy("corrected", proposer="greedy", correction="made up", **settings)
    monkeypatch.setattr(type(strategy), "predict", lambda _, graph, rows: graph.latencies(rows) * (1.0 + rows[:, UNROLL]))
    plain = get_strategy("corrected", proposer="greedy").construct(GRAPH, np.random.default_rng(0))  # type: ignore[attr-defined]
    before = GRAPH.evaluations
    found = strategy.construct(GRAPH, np.random.default_rng(0))  # type: ignore[attr-defined]
    assert found.evaluations == GRAPH.evaluations - before > plain.evaluations
    assert set(plain.schedules) < set(found.schedules) and list(found.latencies) == sorted(found.latencies)
    assert all(GRAPH.is_legal(schedule) for schedule in found.schedules)
