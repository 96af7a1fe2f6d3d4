"""Annealing behind another construction: where chains begin, what they add, that they are no worse than what they begin at."""

from __future__ import annotations

import numpy as np
import pytest

from agents import get_strategy
from agents.annealed import annealed, template_of
from agents.ranking import REGISTER_TILE, Construction, best_of_each
from gensor_gym import ConstructionGraph
from gensor_gym.graph.schedule import Schedule

OPERATOR = "conv2d(n=4, c=32, h=14, w=14, k=64, r=3, s=3, padding=1)"
WALK = {"walkers": 2, "steps": 24, "refiners": 0, "descents": 1}


def _found(seed: int = 0) -> tuple[ConstructionGraph, Construction]:
    """A short walk's construction."""
    graph = ConstructionGraph(OPERATOR, "h200")
    found: Construction = get_strategy("markov", space="gensor", **WALK).construct(graph, np.random.default_rng(seed))  # type: ignore[attr-defined]
    return graph, found


@pytest.mark.parametrize("chains", [1, 3, 200])
def test_chains_begin_at_the_best_of_each_register_tile(chains: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked first are these programs; with more chains than tiles several begin at one."""
    graph, found = _found()
    asked: list[np.ndarray] = []
    original = ConstructionGraph.latencies

    def watched(self: ConstructionGraph, rows: np.ndarray) -> np.ndarray:
        asked.append(rows)
        return original(self, rows)

    monkeypatch.setattr(ConstructionGraph, "latencies", watched)
    annealed(graph, found, chains, 2, 0.1, np.random.default_rng(1))
    rows = np.array([schedule.row for schedule in found.schedules])
    wanted = best_of_each(REGISTER_TILE, rows, np.array(found.latencies))[:chains]
    assert [len(rows) for rows in asked] == [chains] * 3
    np.testing.assert_array_equal(asked[0], np.resize(wanted, asked[0].shape))
    changed = (asked[1] != asked[0]).any(axis=1)
    assert changed.any(), "chains move"


def test_what_is_found_is_added_and_counted() -> None:
    graph, found = _found()
    before = graph.evaluations
    more = annealed(graph, found, 4, 32, 0.1, np.random.default_rng(1))
    assert graph.evaluations - before == 4 * 33 == more.evaluations - found.evaluations
    assert set(found.schedules) < set(more.schedules)
    assert list(more.latencies) == sorted(more.latencies) and more.latencies[0] < found.latencies[0]
    again = ConstructionGraph(OPERATOR, "h200")
    assert list(more.latencies) == [again.latency(schedule) for schedule in more.schedules], "all are legal programs"


def test_cold_chains_only_go_down() -> None:
    """At temperature zero a step that is slower is never taken: what a chain ends at is the best it saw."""
    graph, found = _found()
    better = [annealed(graph, found, 1, steps, 0.0, np.random.default_rng(2)).latencies[0] for steps in (8, 64)]
    assert better[1] <= better[0] <= found.latencies[0]


def test_the_strategy_is_the_walk_and_then_the_chains() -> None:
    graph = ConstructionGraph(OPERATOR, "h200")
    behind = get_strategy("markov_annealing", space="gensor", chains=4, chain_steps=16, chain_temperature=0.2, **WALK)
    made = behind.construct(graph, np.random.default_rng(5))  # type: ignore[attr-defined]
    rng = np.random.default_rng(5)
    walk = get_strategy("markov", space="gensor", **WALK).construct(graph, rng)  # type: ignore[attr-defined]
    assert made.schedules == annealed(graph, walk, 4, 16, 0.2, rng).schedules


def test_a_configuration_gives_its_schedule_back() -> None:
    graph, found = _found()
    template = template_of(graph)
    assert template_of(graph) is template
    point = template.configuration(found.schedules[0])
    assert point is not None and Schedule(template.rows(point[None])[0]) == found.schedules[0]
    row = found.schedules[0].row.copy()
    row[REGISTER_TILE[0]] = 3
    assert template.configuration(Schedule(row)) is None
