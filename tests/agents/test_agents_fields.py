"""Searches of schedules that consist of fields alone: of attention, and of Winograd's algorithm."""

from __future__ import annotations

import itertools

import pytest

import agents
from agents.strategy import FUSED, OtherSearch, strategies_for
from gensor_gym.codegen.families import graph_of
from tests.support.c_cases import machine
from tests.support.chain_gpu_cases import attention
from tests.support.thorough import thorough_but
from tests.support.winograd_cases import winograd

TASKS = {"attention": attention(24, 24, 16), "winograd": winograd(10, 10, 16, 32, "padding=1").freeze()}
SEARCHES = sorted(set(strategies_for(FUSED)) - {"gir_ppo", "exhaustive"})


@pytest.mark.parametrize(
    ("task", "strategy"),
    thorough_but(itertools.product(TASKS, SEARCHES), ("attention", "beam"), ("winograd", "beam"), ("winograd", "gir_descent")),
)
def test_every_search_finds_programs(task: str, strategy: str) -> None:
    """The programs are legal; the best one is no worse than the unscheduled program and no better than the optimum."""
    op, hw = TASKS[task], machine()
    result = agents.optimize(op, hw, trials=6, strategy=strategy, backend="analytic", reuse=False)
    graph = graph_of(op, hw)
    best = min(float(graph.latencies(rows).min()) for rows in graph.enumerate())
    assert graph.is_legal(result.schedule) and best <= result.seconds <= graph.latency(graph.initial())
    assert len({row.schedule for row in result.trace}) == len(result.trace) > 1


def test_the_traverser_ends_near_the_optimum() -> None:
    for op in TASKS.values():
        result = agents.optimize(op, machine(), trials=8, strategy="gir_markov", backend="analytic", reuse=False)
        graph = graph_of(op, machine())
        best = min(float(graph.latencies(rows).min()) for rows in graph.enumerate())
        assert result.seconds < 1.2 * best


def test_a_policy_of_row_nests_refuses_other_graphs() -> None:
    for op in TASKS.values():
        with pytest.raises(OtherSearch, match="is no row nest: expected one for a policy of Gir-v0"):
            agents.optimize(op, machine(), trials=1, strategy="gir_ppo", backend="analytic", reuse=False)
