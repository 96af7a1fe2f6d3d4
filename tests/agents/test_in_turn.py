"""The traverser's walks and a policy's programs in turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agents import get_strategy
from agents.core.ranking import Construction
from agents.hybrids import in_turn
from agents.hybrids.adapted import SHIPPED
from agents.hybrids.corrected import Corrected
from agents.hybrids.correction import load_correction
from agents.policies.card import checked_card
from gensor_gym.construction import ConstructionGraph
from gensor_gym.measure.analytic import AnalyticBackend
from gensor_gym.measure.session import Budget, BudgetSpent, Session, Task

OP, MACHINE = "gemm(m=64, n=48, k=40)", "cascade_lake"


def proposals(count: int, seed: int) -> Construction:
    graph = ConstructionGraph(OP, MACHINE, "extended")
    rng = np.random.default_rng(seed)
    found = {schedule: graph.latency(schedule) for schedule in (graph.random_schedule(rng) for _ in range(count))}
    order = sorted(found, key=found.__getitem__)
    return Construction(tuple(order), tuple(found[one] for one in order), 10 * seed, 100 * seed, float(seed))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Settings of the constructions in order; the policy's programs are those of seed 1, the traverser's of seed 2."""
    found: list[dict[str, Any]] = []

    def construct(self: Corrected, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        found.append(vars(self))
        return proposals(6, 1 if self.proposer == "columns" else 2)

    monkeypatch.setattr(Corrected, "construct", construct)
    monkeypatch.setattr(Corrected, "predict", lambda self, graph, rows: graph.latencies(rows))
    return found


def test_both_are_asked_with_their_settings(asked: list[dict[str, Any]]) -> None:
    given = {"checkpoint": "a policy", "correction": "a model", "walkers": 3, "refined": 2, "turns": 2, "most": 77}
    strategy = get_strategy("in_turn", **given)
    made = strategy.construct(ConstructionGraph(OP, MACHINE, "extended"), np.random.default_rng(0))  # type: ignore[attr-defined]
    walks, policy = asked
    assert (policy["proposer"], policy["checkpoint"], policy["walkers"], policy["refined"]) == ("columns", "a policy", 0, 0)
    assert (walks["proposer"], walks["checkpoint"], walks["walkers"], walks["refined"]) == ("markov_ext", "", 3, 2)
    assert {one["correction"] for one in asked} == {"a model"} and {one["most"] for one in asked} == {77}
    assert list(made.latencies) == sorted(made.latencies) and (made.visited, made.evaluations, made.seconds) == (30, 300, 3.0)
    assert set(made.schedules) == {*proposals(6, 1).schedules, *proposals(6, 2).schedules}


def test_the_first_programs_are_measured_in_turn_the_traversers_first(asked: list[dict[str, Any]]) -> None:
    trace: list[Any] = []
    session = Session(Task.of(OP, MACHINE, AnalyticBackend(), "extended"), Budget(trials=9), on_trial=trace.append)
    session.start()
    with pytest.raises(BudgetSpent):
        get_strategy("in_turn", correction="a model").search(session, np.random.default_rng(0))
    one, other = (list(map(str, proposals(6, seed).schedules)) for seed in (1, 2))
    assert [row.schedule for row in trace][:4] == [other[0], one[0], other[1], one[1]]
    assert len({row.schedule for row in trace}) == 9 and len(asked) == 2, "the rest is chosen among what is there"


def test_the_default_is_the_shipped_policy_of_times_and_this_machines_model(asked: list[dict[str, Any]]) -> None:
    graph = ConstructionGraph(OP, MACHINE, "extended")
    get_strategy("in_turn", correction="a model").construct(graph, np.random.default_rng(0))  # type: ignore[attr-defined]
    assert asked[1]["checkpoint"] == str(in_turn.DEFAULT["cpu"])
    assert checked_card(in_turn.DEFAULT["cpu"])["config"]["agent"]["measured"] == "zen4_1c"
    assert get_strategy("in_turn", correction="a model").training_seconds(graph) > 600  # type: ignore[attr-defined]
    with pytest.raises(FileNotFoundError, match="gensor adapt"):
        get_strategy("in_turn").construct(graph, np.random.default_rng(0))  # type: ignore[attr-defined]


def test_a_gpus_model_of_time_and_policy_ship() -> None:
    graph = ConstructionGraph("gemm(m=256, n=256, k=256)", "h200", "extended")
    strategy = get_strategy("in_turn", refined=1, walkers=2)
    made = strategy.construct(graph, np.random.default_rng(0))  # type: ignore[attr-defined]
    ranked = load_correction(str(SHIPPED["sm_90"])).seconds(graph, graph.stack(list(made.schedules)))
    assert np.allclose(ranked, made.latencies) and list(ranked) == sorted(ranked)
    by_model = [graph.latency(one) for one in made.schedules]
    assert by_model != sorted(by_model), "the correction changes the model's order"
    older = ConstructionGraph("gemm(m=256, n=256, k=256)", "a100", "extended")
    with pytest.raises(FileNotFoundError, match=r"no correction of a100 \(sm_80\) ships, only of sm_90"):
        strategy.construct(older, np.random.default_rng(0))  # type: ignore[attr-defined]


def test_a_program_of_both_takes_one_turn() -> None:
    both = [proposals(6, 1), proposals(6, 1)]
    assert list(in_turn._in_turn(both)) == list(both[0].schedules) and in_turn._merged(both).schedules == both[0].schedules
