"""Searches by the model alone: curves that are exact, evaluations and seconds that are spent."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import pytest

from agents import get_strategy
from agents.core.watched import Curve, WatchedGraph
from agents.runs.anytime import Search, constructing, run_search, spend
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact import certify
from gensor_gym.measure.session import BudgetSpent
from tests.support.in_process import warm_little
from tests.support.policies_made import GEMM, SMALL_WALKS
from tests.support.thorough import thorough_but


@pytest.fixture(scope="module", autouse=True)
def hardly_warm() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        warm_little(patch)
        yield


def watched(limit: int, operator: str = GEMM) -> WatchedGraph:
    return WatchedGraph(operator, "h200", "gensor", limit)


def test_a_watched_graph_is_exact_and_ends() -> None:
    graph, plain = watched(50), ConstructionGraph(GEMM, "h200", "gensor")
    rng = np.random.default_rng(0)
    rows = graph.stack([graph.random_schedule(rng) for _ in range(60)])
    least = np.minimum.accumulate(plain.latencies(rows))[:50]
    graph.latencies(rows[:20])
    with pytest.raises(BudgetSpent, match="50 of 50"):
        graph.latencies(rows[20:])
    assert graph.evaluations == 50
    assert graph.curve.best(np.arange(1, 51)).tolist() == least.tolist()
    assert graph.curve.best(0) == math.inf
    assert graph.curve.elapsed == sorted(graph.curve.elapsed)
    with pytest.raises(ValueError, match="limit 0"):
        watched(0)


def test_walks_tell_what_they_found_and_when() -> None:
    """The curve of compiled walks ends at the best program that the same search without watching finds."""
    strategy = get_strategy("markov", **SMALL_WALKS)
    graph, plain = watched(10**6), ConstructionGraph(GEMM, "h200", "gensor")
    found = strategy.construct(graph, np.random.default_rng(3))  # type: ignore[attr-defined]
    other = strategy.construct(plain, np.random.default_rng(3))  # type: ignore[attr-defined]
    assert found.latencies == other.latencies and graph.evaluations == plain.evaluations == other.evaluations
    assert graph.curve.latencies[-1] == found.latencies[0]
    assert graph.curve.evaluations == sorted(graph.curve.evaluations) and graph.curve.evaluations[-1] <= graph.evaluations
    assert graph.curve.evaluations[0] == 1 and graph.curve.latencies[0] == plain.latency(plain.initial())


def test_what_walks_find_beyond_the_limit_does_not_count() -> None:
    whole, cut = watched(10**6), watched(60)
    strategy = get_strategy("markov", **SMALL_WALKS)
    strategy.construct(whole, np.random.default_rng(1))  # type: ignore[attr-defined]
    with pytest.raises(BudgetSpent):
        strategy.construct(cut, np.random.default_rng(1))  # type: ignore[attr-defined]
    assert cut.evaluations == 60
    assert cut.curve.latencies[-1] == whole.curve.best(60)


def test_curves_keep_improvements_alone() -> None:
    curve = Curve()
    for at, latency in enumerate([3.0, math.inf, 4.0, 2.0, 2.0], 1):
        curve.add(at, latency, at / 10)
    assert curve.evaluations == [1, 4] and curve.latencies == [3.0, 2.0] and curve.elapsed == [0.1, 0.4]


SEARCHES = ("greedy", "beam", "random_walk", "markov", "model_annealing", "model_evolution")


@pytest.mark.parametrize("name", thorough_but(SEARCHES, "greedy", "markov"))
def test_searches_spend_their_evaluations_and_come_near(name: str) -> None:
    values = SMALL_WALKS if name == "markov" else {}
    search = Search(name, name, values, GEMM, "h200", "gensor", 0, 3000)
    row, again = run_search(search), run_search(search)
    assert row["evaluated"] == 3000 and row["curve"][:2] == again["curve"][:2] and row["key"] == search.key
    optimum = certify(ConstructionGraph(GEMM, "h200", "gensor")).optimum
    assert optimum <= row["curve"][1][-1] <= 1.2 * optimum
    assert row["first"]["evaluations"] <= 3000


def test_a_strategy_that_only_measures_is_refused() -> None:
    with pytest.raises(ValueError, match="does not construct"):
        spend(Search("x", "genetic", {}, GEMM, "h200", "gensor", 0, 10), watched(10), np.random.default_rng(0))
    assert {"markov", "ppo", "beam", "model_annealing", "random_walk"} <= set(constructing())


def test_a_search_is_known_by_all_its_values() -> None:
    """Those at their default too: with another default a line of before is no longer this search's. Not by a policy's place."""

    def key(of: str, values: dict, policy: str = "") -> str:
        return Search("x", of, values, GEMM, "h200", "gensor", 0, 9, policy=policy).key

    default = get_strategy("model_annealing").chains  # type: ignore[attr-defined]
    assert key("model_annealing", {}) == key("model_annealing", {"chains": default})
    assert key("model_annealing", {}) != key("model_annealing", {"chains": default + 1})
    assert key("ppo", {"checkpoint": "here"}, "digest") == key("ppo", {"checkpoint": "there"}, "digest")
    assert key("ppo", {"checkpoint": "here"}, "digest") != key("ppo", {"checkpoint": "here"}, "another")


def test_a_search_goes_on_until_both_are_spent_and_begins_again() -> None:
    """A descent of this operator takes some hundred evaluations; ones that end are begun again, the proof is not."""
    search = Search("x", "greedy", {}, GEMM, "h200", "gensor", 0, 100, 0.05)
    row = run_search(search)
    assert row["evaluated"] > 100 and 0.05 <= row["elapsed_s"] < 5.0
    many = run_search(dataclasses.replace(search, evaluations=5000, seconds=1e-4))
    assert many["evaluated"] >= 5000
    proof = run_search(Search("x", "certifier", {}, GEMM, "h200", "gensor", 0, 10**9, 60.0))
    optimum = certify(ConstructionGraph(GEMM, "h200", "gensor")).optimum
    assert proof["curve"][1][-1] == optimum and proof["elapsed_s"] < 30.0
