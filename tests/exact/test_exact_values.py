"""Values of the process against brute force in the environment; regret in `info`; explanations and cards."""

from __future__ import annotations

import itertools
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from agents.exact import explain
from agents.recording import task_cards
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.construct import ConstructEnv
from gensor_gym.env.vector import ConstructVectorEnv
from gensor_gym.exact import append_certificate, certify, shipped
from gensor_gym.exact.states import explore
from gensor_gym.exact.values import solve
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import LEVEL
from tests.support.graph_walks import graph_of

TASK = ("gemm(m=256, n=256, k=64)", "h200", "compact")
"""Large enough for a reward above 0: of a tiny one every program takes over 1000 times the floor, and `stop` is best."""


def test_states_are_all_that_enumeration_gives_and_edges_are_all_legal_actions() -> None:
    graph = graph_of("gemm(m=16, n=8, k=32)", "h200", "compact")
    states = explore(graph)
    opened = {row.tobytes() for row in states.rows if row[LEVEL] == 1}
    assert opened == {row.tobytes() for rows in graph.enumerate() for row in rows}
    assert (np.diff(states.source) >= 0).all() and states.depth[0] == 0
    for at in range(0, len(states.rows), 17):
        mine = states.source == at
        schedule = Schedule(states.rows[at])
        found = {int(a): Schedule(states.rows[t]) for a, t in zip(states.action[mine], states.target[mine], strict=True)}
        assert found == graph.successors(schedule)
        assert states.seconds[at] == graph.latency(schedule)
        assert states.index(schedule.row) == at
    with pytest.raises(ValueError, match="more than 10 states"):
        explore(graph, 10)


def brute_force(env: ConstructEnv, steps: int) -> float:
    """Largest return of all episodes of at most `steps` actions before `stop`, every one played in the environment."""
    best = -math.inf

    def play(actions: tuple[int, ...]) -> None:
        nonlocal best
        env.reset()
        total, weight = 0.0, 1.0
        for action in (*actions, 0):
            _, reward, ended, _, _ = env.step(action)
            total += weight * reward
            weight *= env.discount
        assert ended
        best = max(best, total)
        env.reset()
        for action in actions:
            env.step(action)
        if len(actions) < steps:
            for action in np.flatnonzero(env.action_masks()):
                if action != 0:
                    play((*actions, int(action)))

    play(())
    return best


@pytest.mark.parametrize(("discount", "step_cost", "shaping"), [(1.0, 0.001, True), (0.9, 0.05, True), (0.95, 0.01, False)])
def test_values_are_those_of_brute_force(discount: float, step_cost: float, shaping: bool) -> None:
    """With few steps left every episode can be played; `left` of them leave left - 1 actions before `stop`."""
    operator, machine, space = TASK
    found = solve(graph_of(*TASK), discount, step_cost, shaping)
    env = ConstructEnv(operator, machine, space=space, discount=discount, step_cost=step_cost, shaping=shaping)
    for left in (1, 2, 4):
        assert found.values[left][0] == pytest.approx(brute_force(env, left - 1), abs=1e-12)


def test_the_best_episode_pays_its_value_and_comes_near_the_optimum() -> None:
    operator, machine, space = TASK
    graph = graph_of(*TASK)
    found = solve(graph)
    env = ConstructEnv(operator, machine, space=space)
    env.reset()
    total = 0.0
    for state, action in found.path():
        assert np.array_equal(env.schedule.row, found.states.rows[state])
        _, reward, ended, _, _ = env.step(action)
        total += reward
    assert ended
    assert total == pytest.approx(found.values[graph.horizon][0], abs=1e-12)
    states = found.states
    behind = math.log(graph.latency(env.schedule) / states.seconds.min())
    assert len(found.path()) > 3 and behind <= 0.001 * states.depth[states.optimal].min(), "what steps cost, at most"
    assert (np.diff(found.values[1:], axis=0) >= -1e-12).all(), "more steps are worth no less"


@pytest.fixture
def certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConstructionGraph:
    """A task whose certificate ships."""
    monkeypatch.setenv("GENSOR_GYM_CERTIFICATES", str(tmp_path))
    graph = graph_of(*TASK)
    append_certificate(tmp_path / "h200_compact.jsonl", certify(graph))
    return graph


@pytest.mark.thorough
def test_regret_is_told_at_the_end_where_the_optimum_is_certified(certified: ConstructionGraph) -> None:
    best, env = float(np.concatenate([certified.latencies(r) for r in certified.enumerate()]).min()), ConstructEnv(
        TASK[0], TASK[1], space=TASK[2]
    )
    env.reset()
    _, _, _, _, info = env.step(int(np.flatnonzero(env.action_masks())[1]))
    assert "regret" not in info
    seconds = certified.latency(env.schedule)
    _, _, _, _, info = env.step(0)
    assert info["regret"] == math.log(seconds / best) > 0
    env.reset(options={"schedule": certify(certified).best})
    assert env.step(0)[4]["regret"] == 0.0
    vector = ConstructVectorEnv(3, TASK[0], TASK[1], space=TASK[2])
    vector.reset(seed=0)
    _, _, _, _, info = vector.step(np.zeros(3, dtype=np.int64))
    assert info["_regret"].all() and (info["regret"] == math.log(certified.latency(certified.initial()) / best)).all()
    other = ConstructEnv("gemm(m=256, n=256, k=80)", TASK[1], space=TASK[2])
    other.reset()
    assert "regret" not in other.step(0)[4]


def test_a_graph_of_another_model_has_no_certificate(certified: ConstructionGraph) -> None:
    assert shipped.certificate_of(certified) is not None
    changed = ConstructionGraph(*TASK)
    changed.tables.floats[:] *= 1.5
    assert shipped.certificate_of(changed) is None


@cache
def medium() -> ConstructionGraph:
    return graph_of("gemm(m=256, n=256, k=256)", "h200", "compact")


def test_explanation_of_an_episode() -> None:
    graph = medium()
    found = solve(graph)
    actions = ["tile[4]", "tile[3]", "cache", "tile[4]", "stop"]
    schedule, steps = explain.replay(graph, actions, found)
    assert [step.action for step in steps] == actions
    lost = sum(step.lost or 0.0 for step in steps)
    paid = -4 * 0.001 + math.log(1000 * graph.floor / graph.latency(schedule))
    assert lost == pytest.approx(found.values[graph.horizon][0] - paid, abs=1e-9)
    assert min(step.lost or 0.0 for step in steps) > -1e-12
    text = "\n".join(explain.explain(graph, " ".join(actions)))
    assert "fewest changes" in text and "tile[3]" in text and "arithmetic" in text
    with pytest.raises(ValueError, match="no action 'jump'"):
        explain.explain(graph, "jump")
    with pytest.raises(ValueError, match="step 1, inverse_cache, is illegal"):
        explain.explain(graph, "inverse_cache")


def test_changes_are_the_fewest() -> None:
    """Compared with all sets of columns, on programs one, two and three columns away from an optimum."""
    graph, rng = medium(), np.random.default_rng(0)
    optima = explain.optima_of(graph)
    best = graph.latencies(optima)[0]
    places = explain.columns(graph)
    rows = np.concatenate(list(graph.enumerate()))
    for row in rows[rng.permutation(len(rows))[:12]]:
        changes = explain.smallest_changes(graph, Schedule(row), optima)
        assert (changes[-1].seconds if changes else graph.latency(Schedule(row))) == best
        for other, count in itertools.product(optima, range(len(changes))):
            for names in itertools.combinations(places, count) if count < 2 else ():
                mixed = explain._mixed(row, other, names, places)
                assert graph.latency(Schedule(mixed)) > best
    assert explain.smallest_changes(graph, Schedule(optima[0]), optima) == []


def test_card_of_a_task() -> None:
    graph = medium()
    card = task_cards.card_of(graph)
    states = explore(graph)
    assert card.states == len(states.rows) and card.drawn is None
    assert card.near["5%"] == (states.seconds <= 1.05 * states.seconds.min()).mean()
    assert 0 < card.near["1%"] <= card.near["5%"] <= card.near["10%"] < 1
    assert card.to_optimum == states.depth[states.optimal].min() <= card.depth == states.depth.max() <= card.horizon
    drawn = task_cards.card_of(graph, most=10, candidates=4000)
    assert drawn.states is None and drawn.drawn and drawn.optimum_us == card.optimum_us
