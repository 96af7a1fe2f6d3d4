"""The traverser's idea on fused operators: benefits become probabilities, budgets hold, one seed is one walk."""

from __future__ import annotations

import math

import numpy as np
import pytest

from agents.fused.markov import GirMarkov
from agents.optimizer import run
from agents.strategy import DEFAULTS, FUSED, build, strategies_for
from gensor_gym.dataflow import make
from gensor_gym.gir.actions import ACTIONS, STOP, applied
from gensor_gym.gir.graph import GirGraph
from gensor_gym.hardware import get
from gensor_gym.measure.session import Budget, Session, Task
from tests.support.thorough import thorough_but

OPERATOR = "layernorm(m=40, n=77)"
FEW = {"mcts": {"simulations": 30}}
"""Strategies whose searches take long by default."""


def session(**budget: int) -> Session:
    """On the model's tier."""
    return Session(Task.of(OPERATOR, "cascade_lake", "analytic", "gir"), Budget(**budget))


def test_probabilities_follow_benefits() -> None:
    """Of 5000 walkers at one schedule, as many take each primitive as (T / T')^(1 / temperature) says."""
    graph, count, temperature = GirGraph(make("softmax", 64, 96), get("cascade_lake")), 5000, 0.7
    here = graph.schedule(graph.initial().row)
    rows = np.repeat(here.row[None], count, axis=0)
    seconds = np.full(count, graph.latency(here))
    after, _ = GirMarkov()._step(graph, rows, seconds, temperature, np.random.default_rng(0))
    legal = [a for a in np.flatnonzero(graph.action_mask(here)) if a != STOP]
    ways = applied(here.row[None])[0]
    weights = np.array([(graph.latency(here) / graph.latency(graph.schedule(ways[a]))) ** (1 / temperature) for a in legal])
    taken = np.array([(after == ways[a]).all(axis=1).mean() for a in legal])
    assert taken.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(taken, weights / weights.sum(), atol=4 * math.sqrt(0.25 / count))


def test_enough_evaluations_find_the_optimum() -> None:
    """Of a space that was looked at as a whole."""
    found = session(trials=16, evaluations=20_000)
    run(GirMarkov(), found, 0)
    assert found.best is not None and found.best[1].seconds <= 1.05 * found.graph.least


def test_what_was_visited_is_measured_where_evaluations_run_out() -> None:
    """And the budget is kept."""
    found = session(trials=8, evaluations=300)
    run(GirMarkov(), found, 0)
    assert found.evaluations <= 300 and found.trials == 8
    assert [row.seconds for row in found.trace] == sorted(row.seconds for row in found.trace)


def test_one_seed_is_one_walk() -> None:
    """Another seed is another."""
    traces = []
    for seed in (1, 1, 2):
        traces.append(session(trials=5, evaluations=600))
        run(GirMarkov(walkers=2), traces[-1], seed)
    texts = [[row.schedule for row in one.trace] for one in traces]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("name", thorough_but(strategies_for(FUSED), *list(strategies_for(FUSED))[::3]))
def test_every_strategy_of_fused_operators_searches_them(name: str) -> None:
    """Each ends with a legal program, and measures no more than it may."""
    found = session(trials=6)
    run(build(name, FUSED, FEW.get(name, {})), found, 0)
    assert found.trials == 6 and found.best is not None and found.graph.is_legal(found.best[0])


def test_the_default_is_one_of_them() -> None:
    """And a strategy of loop nests is refused with their names."""
    assert DEFAULTS[FUSED] in strategies_for(FUSED)
    with pytest.raises(ValueError, match="gir_markov"):
        build("markov", FUSED, {})
    assert ACTIONS[STOP].primitive == "stop"
