"""Strategies on the smallest graphs there are, and the front door's refusals."""

from __future__ import annotations

import numpy as np
import pytest

from agents import optimize
from agents.markov import Markov, MarkovExtended
from gensor_gym.construction import ConstructionGraph

SMALLEST = ["gemm(m=1, n=1, k=1)", "gemv(m=1, k=2)", 'elementwise("relu", 1)', "conv2d(1, 1, 1, 1, 1, 1, 1)"]


@pytest.mark.parametrize("strategy", [Markov(), MarkovExtended()])
@pytest.mark.parametrize("operator", SMALLEST)
@pytest.mark.parametrize("machine", ["h200", "cascade_lake"])
def test_a_graph_with_fewer_programs_than_walkers(strategy: Markov, operator: str, machine: str) -> None:
    """Places for programs that no walk filled hold nothing: neither ranked nor walked from."""
    graph = ConstructionGraph(operator, machine, strategy.space)
    for seed in range(3):
        found = strategy.construct(graph, np.random.default_rng(seed))
        assert found.schedules and all(graph.is_legal(schedule) for schedule in found.schedules)
        assert np.allclose([graph.latency(s) for s in found.schedules], found.latencies)


@pytest.mark.parametrize("trials", [None, 0, -1, 1.5, "4"])
def test_trials_are_a_positive_number(trials: object) -> None:
    with pytest.raises(ValueError, match="trials"):
        optimize("gemm(m=4, n=4, k=4)", "h200", "random_walk", trials=trials, backend="analytic")


def test_what_is_no_operator_is_named() -> None:
    with pytest.raises(ValueError, match="operator 3"):
        optimize(3, "h200", "random_walk", trials=1, backend="analytic")
