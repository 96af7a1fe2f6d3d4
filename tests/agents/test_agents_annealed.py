"""Annealing behind another construction: where chains begin, what they add, that they are no worse than what they begin at."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from agents import get_strategy
from agents.autotvm.template import Template
from agents.core.ranking import REGISTER_TILE, Construction, best_of_each
from agents.hybrids.annealed import annealed, template_of
from gensor_gym import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import TENSOR_CORE

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
    assert more.visited - found.visited == 4 * 33 and more.seconds > found.seconds
    assert list(more.latencies) == sorted(more.latencies) and more.latencies[0] < found.latencies[0]
    again = ConstructionGraph(OPERATOR, "h200")
    assert list(more.latencies) == [again.latency(schedule) for schedule in more.schedules], "all are legal programs"


def _steps(found: Construction, temperature: float, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """By how much the logarithm of the latency rose in every step that a chain of 200 took."""
    graph = ConstructionGraph(OPERATOR, "h200")
    points: list[np.ndarray] = []
    original = Template.mutated

    def watched(self: Template, configurations: np.ndarray, rng: np.random.Generator, tries: int = 8) -> np.ndarray:
        points.append(configurations)
        return original(self, configurations, rng, tries)

    with monkeypatch.context() as patched:
        patched.setattr(Template, "mutated", watched)
        annealed(graph, found, 1, 200, temperature, np.random.default_rng(2))
    return np.diff(np.log(graph.latencies(template_of(graph).rows(np.concatenate(points)))))


def test_cold_chains_only_go_down_and_hot_ones_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = _found()
    cold, hot = (_steps(found, temperature, monkeypatch) for temperature in (0.0, 5.0))
    assert len(cold) == len(hot) == 199, "no chain ends before its steps"
    assert (cold <= 0).all() and (cold < 0).any()
    assert (hot > 0.1).sum() > 20


@pytest.mark.parametrize("there", [0, 1])
def test_programs_that_the_template_does_not_have_begin_no_chain(there: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains begin at those it has; at random programs where it has none."""
    graph, found = _found()
    few = dataclasses.replace(found, schedules=found.schedules[-3:], latencies=found.latencies[-3:])
    had = set(few.schedules[:there])
    original, begun = Template.vector_of, []
    monkeypatch.setattr(Template, "vector_of", lambda self, row: original(self, row) if Schedule(row) in had else None)
    moved = Template.mutated
    monkeypatch.setattr(Template, "mutated", lambda self, points, rng: begun.append(points) or moved(self, points, rng))
    more = annealed(graph, few, 4, 3, 0.1, np.random.default_rng(0))
    assert len(begun[0]) == 4 and len(np.unique(begun[0], axis=0)) == (1 if there else 4)
    assert set(few.schedules) < set(more.schedules)
    nothing = dataclasses.replace(found, schedules=(), latencies=())
    assert annealed(graph, nothing, 2, 3, 0.1, np.random.default_rng(0)).latencies


@pytest.mark.parametrize("field", ["chains", "chain_steps"])
def test_settings_out_of_range_are_named(field: str) -> None:
    for name in ("markov_annealing", "policy_annealing"):
        with pytest.raises(ValueError, match=f"{field}=0"):
            get_strategy(name, **{field: 0})
    with pytest.raises(ValueError, match="chain_temperature=-1"):
        get_strategy("markov_annealing", chain_temperature=-1.0)
    with pytest.raises(ValueError, match="form"):
        get_strategy("markov_annealing", form="sum")


def test_few_chains_begin_at_every_stratum_by_turns() -> None:
    """Two chains on CUDA cores, mma.sync and wgmma: after some rounds each stratum has been begun at."""
    graph = ConstructionGraph('gemm(m=1024, n=1024, k=1024, dtype="float16")', "h200", "extended")
    search, begun = get_strategy("model_annealing", chains=2, steps=1), set()
    rounds = search.rounds(graph, np.random.default_rng(0))  # type: ignore[attr-defined]
    for _ in range(12):
        begun |= {int(schedule.row[TENSOR_CORE]) for schedule in next(rounds).schedules}
    assert begun == {0, 1, 2}


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
    point = template.vector(found.schedules[0])
    assert point is not None and Schedule(template.rows(point[None])[0]) == found.schedules[0]
    row = found.schedules[0].row.copy()
    row[REGISTER_TILE[0]] = 3
    assert template.vector_of(row) is None
