"""Searches of plans and a policy of plans keep their budgets and learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agents.planning.graph_network import GraphPolicy, batched, seen
from agents.planning.graph_network import drawn as drawn_actions
from agents.planning.local import descended
from agents.planning.ppo import Learner, Settings, Step, _advantages, by_policy
from agents.planning.searches import SEARCHES, Walker, gain, searched, walked, ways
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


HW = hardware.get("cascade_lake")
GRAPHS = [PlanGraph(network_of(drawn(name)), HW) for name in ("attending(seed=6)", "layered(seed=4)")]  # type: ignore[arg-type]


def test_a_batch_holds_states_apart_and_allows_legal_actions() -> None:
    torch.manual_seed(0)
    policy, states = GraphPolicy(), [graph.after(graph.first, ways(graph.first)[-1]) for graph in GRAPHS]
    views = [seen(graph, state) for graph, state in zip(GRAPHS, states, strict=True)]
    masks = np.array([one.mask for one in states])
    logs, values = policy(batched(views, masks))
    for place in range(2):
        alone = policy(batched(views[place : place + 1], masks[place : place + 1]))
        assert torch.allclose(alone[0][0], logs[place], atol=1e-5) and torch.allclose(alone[1][0], values[place], atol=1e-5)
    assert (logs.exp()[:, 1:][~torch.from_numpy(masks[:, 1:])] == 0).all() and (logs.exp()[:, 0] == 0).all()
    greedy = [int(drawn_actions(policy, GRAPHS[0], states[:1], 0.0, np.random.default_rng(seed))[0]) for seed in range(4)]
    assert greedy == [int(logs[0].argmax())] * 4
    assert len({int(drawn_actions(policy, GRAPHS[0], states[:1], 9.0, np.random.default_rng(seed))[0]) for seed in range(30)}) > 1


def test_advantages_end_with_an_episode_and_skip_resets() -> None:
    """Two steps of an episode, a reset, and a step of the next one: worked out by hand."""
    column = np.array([[1.0], [2.0], [0.0], [4.0]])
    ended, over = np.array([[0], [1], [0], [0]], bool), np.array([[0], [0], [1], [0]], bool)
    none = np.zeros((4, 1))
    every = Step((), none, none, column, np.array([[0.5], [0.25], [9.0], [1.0]]), ended, over, none)
    found = _advantages(every, np.array([3.0]), 0.5)[:, 0]
    second, last = 2.0 - 0.25, 4.0 + 3.0 - 1.0
    assert found == pytest.approx([1.0 + 0.25 - 0.5 + 0.5 * second, second, 0.0, last])


def test_ppo_learns_and_its_search_keeps_the_budget() -> None:
    """On one network the return of an episode grows; one seed is one policy."""
    few = Settings(envs=4, steps=32, minibatch=64, learning_rate=5e-3)
    learner, again = (Learner(["attending(seed=6)"], HW, 1, few) for _ in range(2))
    rewards = [learner.advance(number / 12) for number in range(12)]
    assert [again.advance(number / 12) for number in range(2)] == rewards[:2]
    assert np.mean(rewards[-3:]) > np.mean(rewards[:3])
    graph = GRAPHS[0]
    walkers = [walked(by_policy(learner.policy, 4), graph, budget, 0) for budget in (10, 200)]
    assert [walker.taken for walker in walkers] == [10, 200] and graph.least is not None
    assert graph.least * (1 - 1e-9) <= walkers[1].least() <= walkers[1].least(10) == walkers[0].least() < graph.first.seconds
