"""Policies of fused operators: what is drawn for them, what ships, what they observe, and how they and descents search."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sb3_contrib")

from agents.fused.descent import GirDescent
from agents.fused.observer import GirObserver
from agents.fused.policy import POLICIES, GirPpo, load_policy
from agents.learners.stored import POLICY
from agents.policies.card import CARD
from agents.policies.fused_parts import SEEN, UNSEEN, fused_fingerprints, fused_operators, part, parts_of
from gensor_gym.env.fused.env import GirVectorEnv
from gensor_gym.gir.graph import GirGraph
from gensor_gym.hardware import get

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
