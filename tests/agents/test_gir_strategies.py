"""Strategies of fused operators: the Markov walk, a learned policy, and trials in turn of the families of programs."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from agents.baselines.exhaustive import BEFORE_OTHER, FAMILY, Exhaustive, in_turns, tried_first
from agents.fused.descent import GirDescent
from agents.fused.markov import GirMarkov
from agents.fused.observer import GirObserver
from agents.fused.policy import POLICIES, GirPpo, load_policy
from agents.learners.stored import POLICY
from agents.optimizer import run
from agents.policies.card import CARD
from agents.policies.fused_parts import SEEN, UNSEEN, fused_fingerprints, fused_operators, part, parts_of
from agents.strategy import DEFAULTS, FUSED, build, strategies_for
from gensor_gym import hardware
from gensor_gym.dataflow import make
from gensor_gym.dataflow.table import fused_operator
from gensor_gym.env.fused.env import GirVectorEnv
from gensor_gym.gir.actions import ACTIONS, STOP, applied
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.schedule import GirSchedule
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


pytest.importorskip("sb3_contrib")


SHIPPED = POLICIES / "gir_ppo_cpu"


def graph_of(text: str) -> GirGraph:
    return GirGraph(fused_operators(text)[0], get("cascade_lake"))


def test_parts_are_apart_and_always_the_same() -> None:
    names = ("fused/train", "fused/validation", "fused/test", "fused/unseen")
    drawn = [set(map(str, part(name))) for name in names]
    assert len(set.union(*drawn)) == sum(map(len, drawn))
    assert {op.name for op in part("fused/train")} == set(SEEN) and {op.name for op in part("fused/unseen")} == set(UNSEEN)
    assert str(part("fused/train")[0]) == "softmax(m=547, n=70)"
    assert parts_of(["fused/test", "softmax(m=547, n=70)"]) == ["test", "train"] and parts_of("softmax(m=3, n=4)") == ["train"]


@pytest.mark.parametrize(("given", "words"), [("fused/tran", "fused/train"), ("gemm(m=4, n=4, k=4)", "a fused operator")])
def test_what_is_no_part_is_named(given: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fused_operators(given)


def test_a_fingerprint_is_of_the_task() -> None:
    ops = fused_operators(["softmax(m=6, n=19)", "softmax(m=6, n=20)"])
    first = fused_fingerprints(ops, "cascade_lake", "gir")
    assert len(set(first.values())) == 2 and first == fused_fingerprints(ops, "cascade_lake", "gir")
    for machine, space in (("cascade_lake", "monotone"), ("zen5_1c", "gir")):
        assert fused_fingerprints(ops, machine, space)[str(ops[0])] != first[str(ops[0])]


def test_the_policy_that_ships_is_for_the_tasks_of_its_card(recwarn: pytest.WarningsRecorder) -> None:
    """And is good on shapes that it has not seen, in one episode each."""
    load_policy(str(SHIPPED))
    assert not [w for w in recwarn if "fingerprints differ" in str(w.message)]
    regrets = []
    for op in part("fused/test"):
        graph = GirGraph(op, get("cascade_lake"))
        found = GirPpo(episodes=1).construct(graph, np.random.default_rng(0))  # type: ignore[arg-type]
        assert found.evaluations == graph.evaluations <= graph.horizon and graph.is_legal(found.schedules[0])  # type: ignore[arg-type]
        regrets.append(np.log(found.latencies[0] / graph.optimum()[1]))
    assert 0 <= np.mean(regrets) < 0.1


def test_a_policy_of_other_widths_is_refused(tmp_path: Path) -> None:
    card = json.loads((SHIPPED / CARD).read_text())
    card["config"]["agent"]["net_arch"] = [8, 8]
    (tmp_path / CARD).write_text(json.dumps(card))
    (tmp_path / POLICY).write_bytes((SHIPPED / POLICY).read_bytes())
    with pytest.raises(ValueError, match="does not fit its card"):
        load_policy(str(tmp_path))


def test_the_observer_remembers_the_fastest_of_each_episode_and_charges_each() -> None:
    paid: list[int] = []
    envs = GirVectorEnv(3, "softmax(m=64, n=96)", "cascade_lake", autoreset_mode="Disabled")
    observer = GirObserver(envs, 2, lambda count, best: paid.append(count))
    flat, _ = envs.reset(seed=0)
    rng, graph, seen = np.random.default_rng(0), envs.graphs[0], [{} for _ in range(3)]
    over = np.array([False, False, True])
    for _ in range(6):
        assert observer.observe(flat, over) is flat
        for i in (0, 1):
            seen[i][envs.schedules[i]] = graph.latency(envs.schedules[i])
        masks = envs.action_masks()
        flat, *_ = envs.step(np.where(masks[:, 1:], rng.random(masks[:, 1:].shape), -1.0).argmax(axis=1) + 1)
    assert paid == [2] * 6 and np.isinf(observer.seconds[2]).all()
    for i in (0, 1):
        assert sorted(observer.seconds[i]) == pytest.approx(sorted(seen[i].values())[:2])
        assert graph.latencies(observer.rows[i]) == pytest.approx(observer.seconds[i])


def test_a_descent_ends_where_no_single_change_helps() -> None:
    graph = graph_of("layernorm(m=40, n=77)")
    found = GirDescent().construct(graph, np.random.default_rng(0))
    best = found.schedules[0]
    assert found.evaluations == graph.evaluations and found.latencies[0] == graph.latency(best)
    beside = [after for after in graph.successors(best).values() if (after.row != best.row).sum() == 1]
    assert beside and min(map(graph.latency, beside)) >= found.latencies[0]
    again = GirDescent().constructions(graph, np.random.default_rng(0))
    assert next(again).latencies == found.latencies
    assert min(next(again).latencies[0] for _ in range(8)) <= 1.05 * graph.optimum()[1]


def test_families_take_turns_and_what_is_far_from_the_best_comes_last() -> None:
    families = np.array([[1], [1], [2], [1], [2], [3], [3]], np.int32)
    seconds = np.array([1.0, 1.0, 1.1, 1.1, 1.2, 1.2, 1.5])
    assert in_turns(families, seconds, 1.2).tolist() == [0, 2, 5, 1, 4, 3, 6]
    assert in_turns(families, seconds, 1.1).tolist() == [0, 2, 1, 3, 4, 5, 6]
    assert in_turns(families, seconds, 0.0).tolist() == list(range(7))


def test_the_first_trials_of_a_fused_operator_are_of_different_families() -> None:
    session = Session(Task.of("kv_concat(h=32, t=127, d=128)", "cascade_lake", "analytic", "gir"), Budget(trials=8))
    search = Exhaustive("gir")
    rows = np.stack(list(search._ranked(session)))
    seconds = session.graph.latencies(rows)
    near = seconds <= search.near * seconds.min()
    families = len(np.unique(rows[near][:, FAMILY], axis=0))
    assert families > BEFORE_OTHER and len(np.unique(rows[:families, FAMILY], axis=0)) == families
    last = near.sum() + 1
    assert seconds[0] == seconds.min() and near[:last].sum() >= near.sum() and (np.diff(seconds[last:]) >= 0).all()


def test_the_other_way_to_store_is_tried_however_far_it_is() -> None:
    """A copy that the model would store past the caches took a third longer so on an EPYC (Zen 5)."""
    machine = hardware.get("cascade_lake")
    memory = tuple(dataclasses.replace(level, copied=level.bandwidth / 9, streamed=level.bandwidth) for level in machine.memory)
    graph = GirGraph(fused_operator("kv_concat(h=32, t=255, d=128)"), dataclasses.replace(machine, memory=memory))
    rows = np.concatenate(list(graph.enumerate()))
    seconds = graph.latencies(rows)
    streams = GirSchedule.columns(rows)["streaming"] == 1
    assert seconds[~streams].min() > Exhaustive.near * seconds.min()
    order = tried_first(graph, rows, seconds)
    assert len(np.unique(order)) == len(rows)
    assert streams[order[:10]].tolist() == [True] * BEFORE_OTHER + [False] + [True] * 6
    assert seconds[order[BEFORE_OTHER]] == seconds[~streams].min()


def test_of_a_small_operator_one_task_and_many_are_tried() -> None:
    """What a second thread costs is known least of all."""
    machine = dataclasses.replace(hardware.get("cascade_lake"), launch_overhead=5e-7)
    graph = GirGraph(fused_operator("bias(m=49, n=232)"), machine)
    rows = np.concatenate(list(graph.enumerate()))
    header = GirSchedule.columns(rows[tried_first(graph, rows, graph.latencies(rows))[:4]])
    tasks = -(-49 // (header["rows"] * header["loop"]))
    assert 0 < np.count_nonzero(tasks == 1) < 4
