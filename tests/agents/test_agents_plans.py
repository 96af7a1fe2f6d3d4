"""Searches of plans: none goes below the proved optimum or over its budget, and each does what its name says."""

from __future__ import annotations

import numpy as np
import pytest

from agents.planning.local import descended
from agents.planning.searches import SEARCHES, Walker, gain, searched, ways
from gensor_gym import hardware
from gensor_gym.networks.fusion.decisions import decisions
from gensor_gym.networks.plan import cut_all
from gensor_gym.networks.planning.drawn import drawn, network_of
from gensor_gym.networks.planning.graph import PlanGraph

GRAPH = PlanGraph(network_of(drawn("attending(seed=6)")), hardware.get("cascade_lake"))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_keeps_its_budget_and_repeats_by_its_seed(name: str) -> None:
    assert GRAPH.least is not None
    found = [searched(SEARCHES[name], GRAPH, budget, seed=1) for budget in (0, 40, 40, 400)]
    assert found[0] is GRAPH.first and found[1].seconds == found[2].seconds
    assert GRAPH.least * (1 - 1e-9) <= found[3].seconds <= found[1].seconds < GRAPH.first.seconds
    walker = Walker(GRAPH, 40)
    with pytest.raises(Exception, match="^$"):  # Spent
        while True:
            SEARCHES[name](walker, np.random.default_rng(0))
    assert walker.taken == 40 and walker.best.seconds < GRAPH.first.seconds


def test_greedy_takes_what_saves_most_and_local_search_ends_where_nothing_does() -> None:
    state = GRAPH.first
    while found := ways(state):
        after = {action: GRAPH.after(state, action).seconds for action in found}
        chosen = max(found, key=lambda action: gain(state, action))  # noqa: B023
        assert after[chosen] == pytest.approx(min(after.values()))
        state = GRAPH.after(state, chosen)
    assert searched(SEARCHES["greedy"], GRAPH, 1000, 0).seconds == pytest.approx(state.seconds)
    plan, priced = descended(cut_all(GRAPH.operator), GRAPH.prices.total)
    near = [changed for _, changed in decisions(plan) if not any(piece.follows for piece in changed.pieces)]
    assert priced > len(near) > 0 and min(map(total, near)) >= total(plan) * (1 - 1e-9)


def total(plan: object) -> float:
    return GRAPH.prices.total(plan.pieces)  # type: ignore[attr-defined]
