"""Learned models of time: what they learn from, walks that they guide, and searches in turn with a policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents import get_strategy
from agents.core.ranking import Construction
from agents.gensor import walk
from agents.gensor.guided_walks import guided_walks
from agents.gensor.markov import MarkovExtended
from agents.hybrids import in_turn
from agents.hybrids.adapted import SHIPPED
from agents.hybrids.corrected import Corrected
from agents.hybrids.correction import Correction, centred, load_correction
from agents.hybrids.program_features import features_of
from agents.policies.card import checked_card
from agents.runs.jobs import _training_seconds as training_seconds
from agents.training.learn_correction import Observed, elsewhere, fitted, learn, observations, rank_correlation, regrets
from gensor_gym import hardware, operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.foreign import read_json
from gensor_gym.graph.actions import CACHE, UNCACHE
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import KNOB, LEVEL, MAX_AXES, MAX_LEVELS, ROW, SPATIAL_SLOTS, TILE
from gensor_gym.measure.analytic import AnalyticBackend
from gensor_gym.measure.records import measured
from gensor_gym.measure.session import Budget, BudgetSpent, Session, Task

UNROLL = KNOB + KNOB_INDEX["unroll"]
MACHINE = "zen5_1c"


def made_up(count: int, parts: tuple[str, ...] = ("train",)) -> list[dict]:
    """Measurements of a machine that is slower than the model the more is unrolled, and half as fast in all."""
    rng, rows = np.random.default_rng(0), []
    found = [op for op in operators.resolve("split/v1/train") + operators.resolve("split/v1/test") if op.points < 1e7]
    chosen = [op for op in found if operators.part_of(op) in parts and op.name != "elementwise"][:8]
    for op in chosen:
        graph = ConstructionGraph(op, MACHINE, "extended")
        for _ in range(count):
            schedule = graph.random_schedule(rng)
            seconds = 2.0 * graph.latency(schedule) * np.exp(0.4 * schedule.row[UNROLL])
            rows.append({"operator": str(op), "schedule": str(schedule), "seconds": float(seconds)})
    return rows


def too_large() -> str:
    """A program whose register tile is 128 by 128."""
    row = ConstructionGraph("gemm(m=128, n=128, k=128)", MACHINE, "extended").initial().row.copy()
    for level in range(MAX_LEVELS):
        row[TILE + level * MAX_AXES : TILE + (level + 1) * MAX_AXES][SPATIAL_SLOTS - 2 : SPATIAL_SLOTS] = 128
    return str(Schedule(row))


def test_a_correction_ranks_operators_it_has_not_seen(tmp_path: Path) -> None:
    correction, card = learn([Observed.of(made_up(30), MACHINE, "extended")], "extended")
    assert card["rank_corrected"] > card["rank_model"] + 0.02 and card["first_corrected"] <= card["first_model"]
    said = regrets(card)
    assert len(said) == 2 and f"{np.expm1(card['first_corrected']):.1%} by the corrected model" in said[0] and not regrets({})
    assert card["kernels"] == 8 * 30 and len(card["operators"]) == 8
    correction.save(tmp_path / "c", card)
    graph = ConstructionGraph("gemv(m=768, k=3072)", MACHINE, "extended")
    rows = graph.stack([graph.random_schedule(np.random.default_rng(i)) for i in range(12)])
    assert load_correction(str(tmp_path / "c")).seconds(graph, rows).tolist() == correction.seconds(graph, rows).tolist()
    plain = get_strategy("corrected", proposer="greedy").construct(graph, np.random.default_rng(0))  # type: ignore[attr-defined]
    strategy = get_strategy("corrected", proposer="greedy", correction=str(tmp_path / "c"))
    found = strategy.construct(graph, np.random.default_rng(0))  # type: ignore[attr-defined]
    assert set(found.schedules) == set(plain.schedules[:512]) and list(found.latencies) == sorted(found.latencies)
    assert training_seconds(strategy, graph) is None  # of a proposer that learned nothing
    first = [np.mean([s.row[UNROLL] for s in of.schedules[:20]]) for of in (found, plain)]
    assert first[0] <= first[1]


@pytest.mark.parametrize("machine", ["h200", "zen4_1c"])
def test_features_of_a_program_are_always_the_same(machine: str) -> None:
    """Those of a GPU's convolutions read memory behind the program's row once."""
    table, hw = measured.load(machine, "test"), measured.here(machine)
    of = table[(table.status == "OK") & table.operator.astype(str).str.startswith("conv2d(")]
    for text, rows in list(of.groupby("operator", observed=True))[:3]:
        graph = ConstructionGraph(str(text), hw, "extended")
        programs = graph.stack([Schedule.parse(one) for one in rows.schedule])
        garbage = np.full((2 * len(programs), ROW), 1 << 30, dtype=np.int32)
        garbage[::2] = programs
        found, strided = features_of(graph, programs), features_of(graph, garbage[::2])
        assert np.array_equal(found, strided) and np.isfinite(found).all() and np.abs(found).max() < 1e6


@pytest.mark.thorough
def test_the_shipped_correction_is_learned_from_the_shipped_table() -> None:
    observed = observations("h200", measured.here("h200"), "extended")
    correction, card = learn([observed], "extended", validate=False)
    shipped = read_json(SHIPPED["sm_90"] / "card.json")
    assert card.items() <= shipped.items() and shipped["measured"] == ["h200"]
    again, known = observed.features[::97], load_correction(str(SHIPPED["sm_90"]))
    assert np.allclose(correction.log_ratio(again), known.log_ratio(again), atol=1e-4)
    assert elsewhere(known, "h200", "extended") == pytest.approx(shipped["elsewhere"], abs=1e-3)
    assert shipped["elsewhere"]["first_corrected"] < shipped["elsewhere"]["first_model"]
    assert not {text for text in shipped["operators"] if operators.part_of(operators.parse(text)) != "train"}


def test_what_no_correction_comes_of(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="learned on train alone"):
        Observed.of(made_up(1, ("train", "test"))[:2] + made_up(1, ("test",)), MACHINE, "extended")
    with pytest.raises(ValueError, match="expected at least 5 operators"):
        Observed.of(made_up(2)[:4], MACHINE, "extended")
    with pytest.raises(ValueError, match="1 kernels of .* do not fit zen5_1c in space extended: .*GENSOR_GYM_THREADS"):
        Observed.of([*made_up(2), {"operator": "gemm(m=128, n=128, k=128)", "schedule": too_large(), "seconds": 1.0}],
                    MACHINE, "extended")  # fmt: skip
    with pytest.raises(ValueError, match="measured 'zen3': expected a file, or a machine of Measured v1: .*zen4_1c"):
        observations("zen3", hardware.get(MACHINE), "extended")
    with pytest.raises(FileNotFoundError, match="learn_correction"):
        load_correction(str(tmp_path / "none"))


def test_the_last_machine_counts_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two machines that disagree: on the second, what is unrolled is faster."""
    slow = Observed.of(made_up(30), MACHINE, "extended")
    of_unroll = (slow.times - slow.model - np.log(2.0)) / 0.4
    fast = replace(slow, times=slow.model - 0.4 * of_unroll)
    log_ratios = [fitted([slow, fast], 0, last).log_ratio(slow.features) for last in (0.01, 1.0, 100.0)]
    slopes = [np.polyfit(of_unroll, found, 1)[0] for found in log_ratios]
    assert slopes[0] > 0.1 > slopes[1] > -0.1 > slopes[2]
    asked: list[tuple] = []
    monkeypatch.setattr(Correction, "fit", lambda *given: asked.append(given))
    fitted([slow, fast], 0, 3.0, without=slow.operators[:2])
    ((features, times, groups, seed, importance),) = asked
    kept = slow.groups >= 2
    assert np.array_equal(features, np.concatenate([slow.features[kept]] * 2)) and seed == 0
    assert np.array_equal(times, np.concatenate([slow.times[kept], fast.times[kept]]))
    assert np.array_equal(groups, np.concatenate([slow.groups[kept] - 2, slow.groups[kept] + 4]))
    assert importance.tolist() == [1.0] * kept.sum() + [3.0] * kept.sum()


def test_means_of_operators_are_taken_away() -> None:
    assert centred(np.array([1.0, 3.0, 10.0]), np.array([0, 0, 1]), np.array([3.0, 1.0, 2.0])).tolist() == [-0.5, 1.5, 0.0]
    graph = ConstructionGraph("gemv(m=768, k=3072)", MACHINE, "extended")
    features = features_of(graph, graph.stack([graph.initial(), graph.random_schedule(np.random.default_rng(0))]))
    labels = np.tile([0.0, 1.0], 60)
    fitted = Correction.fit(np.tile(features, (60, 1)), labels + 5.0, np.zeros(120, dtype=np.int64))
    assert np.diff(fitted.log_ratio(features) + features[:, 0])[0] > 0.5
    assert rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 9.0])) == pytest.approx(1.0)
    assert rank_correlation(np.ones(3), np.arange(3.0)) == 0.0


GRAPH = ConstructionGraph("gemm(m=48, n=64, k=40)", "cascade_lake", "extended")


def greedy(row: np.ndarray, options: np.ndarray, steps: int) -> float:
    """Least seconds that a walk sees which always takes the primitive of the largest benefit, by the analytic model."""
    least, at_level, ints, floats = np.inf, 0, GRAPH.tables.ints, GRAPH.tables.floats
    for _ in range(steps):
        actions = np.flatnonzero(GRAPH.action_masks(row[None])[0])[1:]
        results, _ = GRAPH.transitions(np.repeat(row[None], len(actions), axis=0), actions)
        now, after = GRAPH.latencies(row[None])[0], GRAPH.latencies(results)
        least = min(least, after.min())
        gains = [
            walk.log_benefit(a, now, t, row, result, at_level, ints, floats, options)
            for a, t, result in zip(actions, after, results, strict=True)
        ]
        best = int(np.argmax(gains))
        row, at_level = results[best], 0 if actions[best] in (CACHE, UNCACHE) else at_level + 1
    return float(least)


def test_cold_walks_take_the_largest_benefit() -> None:
    options = MarkovExtended().options(12, 1e-4)
    options[walk.FINISH] = 1e-4
    start = GRAPH.initial().row
    rows, seconds = guided_walks(GRAPH, start[None], GRAPH.latencies, options, np.random.default_rng(0))
    assert seconds.min() == greedy(start, options, 12) < 0.1 * GRAPH.latency(GRAPH.initial())
    np.testing.assert_array_equal(seconds, GRAPH.latencies(np.ascontiguousarray(rows)))


def test_walks_do_not_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    actions, plain = set[int](), ConstructionGraph.transitions

    def spied(graph: ConstructionGraph, rows: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        actions.update(action.tolist())
        return plain(graph, rows, action)

    monkeypatch.setattr(ConstructionGraph, "transitions", spied)
    start = GRAPH.initial().row
    guided_walks(GRAPH, start[None], GRAPH.latencies, MarkovExtended().options(2, 0.5), np.random.default_rng(0))
    assert set(np.flatnonzero(GRAPH.action_masks(start[None])[0])[1:]) <= actions and 0 not in actions


def test_another_model_leads_elsewhere() -> None:
    """A model that likes large register tiles is followed there."""
    options, starts = MarkovExtended().options(24, 0.5), np.repeat(GRAPH.initial().row[None], 6, axis=0)

    def predict(rows: np.ndarray) -> np.ndarray:
        return 1.0 / rows[:, :8].astype(float).prod(axis=1)

    found = [guided_walks(GRAPH, starts, of, options, np.random.default_rng(1)) for of in (predict, GRAPH.latencies)]
    for rows, _ in found:
        assert GRAPH.fits(np.ascontiguousarray(rows)).all() and len({row.tobytes() for row in rows}) == len(rows)
    largest = [1.0 / predict(rows).min() for rows, _ in found]
    assert largest[0] > largest[1]


@pytest.mark.parametrize("settings", [{"walkers": 3, "steps": 6}, {"refined": 2, "descents": 2}])
def test_a_learned_model_of_time_goes_beyond_what_the_search_proposed(settings: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model here knows one thing: unrolling is bad."""
    strategy = get_strategy("corrected", proposer="greedy", correction="made up", **settings)
    monkeypatch.setattr(type(strategy), "predict", lambda _, graph, rows: graph.latencies(rows) * (1.0 + rows[:, UNROLL]))
    plain = get_strategy("corrected", proposer="greedy").construct(GRAPH, np.random.default_rng(0))  # type: ignore[attr-defined]
    before = GRAPH.evaluations
    found = strategy.construct(GRAPH, np.random.default_rng(0))  # type: ignore[attr-defined]
    assert found.evaluations == GRAPH.evaluations - before > plain.evaluations
    assert set(plain.schedules) < set(found.schedules) and list(found.latencies) == sorted(found.latencies)
    assert all(GRAPH.is_legal(schedule) for schedule in found.schedules)


OP, MACHINE_TURN = "gemm(m=64, n=48, k=40)", "cascade_lake"


def proposals(count: int, seed: int) -> Construction:
    graph = ConstructionGraph(OP, MACHINE_TURN, "extended")
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
    made = strategy.construct(ConstructionGraph(OP, MACHINE_TURN, "extended"), np.random.default_rng(0))  # type: ignore[attr-defined]
    walks, policy = asked
    assert (policy["proposer"], policy["checkpoint"], policy["walkers"], policy["refined"]) == ("columns", "a policy", 0, 0)
    assert (walks["proposer"], walks["checkpoint"], walks["walkers"], walks["refined"]) == ("markov_ext", "", 3, 2)
    assert {one["correction"] for one in asked} == {"a model"} and {one["most"] for one in asked} == {77}
    assert list(made.latencies) == sorted(made.latencies) and (made.visited, made.evaluations, made.seconds) == (30, 300, 3.0)
    assert set(made.schedules) == {*proposals(6, 1).schedules, *proposals(6, 2).schedules}


def test_the_first_programs_are_measured_in_turn_the_traversers_first(asked: list[dict[str, Any]]) -> None:
    trace: list[Any] = []
    session = Session(Task.of(OP, MACHINE_TURN, AnalyticBackend(), "extended"), Budget(trials=9), on_trial=trace.append)
    session.start()
    with pytest.raises(BudgetSpent):
        get_strategy("in_turn", correction="a model").search(session, np.random.default_rng(0))
    one, other = (list(map(str, proposals(6, seed).schedules)) for seed in (1, 2))
    assert [row.schedule for row in trace][:4] == [other[0], one[0], other[1], one[1]]
    assert len({row.schedule for row in trace}) == 9 and len(asked) == 2, "the rest is chosen among what is there"


def test_the_default_is_the_shipped_policy_of_times_and_this_machines_model(asked: list[dict[str, Any]]) -> None:
    graph = ConstructionGraph(OP, MACHINE_TURN, "extended")
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


GRAPH_FEATURES = ConstructionGraph("gemm(m=40, n=48, k=20)", "cascade_lake", "extended")
AXES = [3, 4, 5]
"""Slots of m, n and k."""


def test_features_of_a_product_by_hand() -> None:
    """Tiles 4x16x4 in 8x16x20 in 16x48x20: 40 rows take three tiles of 16, that is 48."""
    row = GRAPH_FEATURES.initial().row.copy()
    for level, sizes in enumerate(([4, 16, 4], [8, 16, 20], [16, 48, 20], [16, 48, 20])):
        row[[TILE + level * MAX_AXES + axis for axis in AXES]] = sizes
    row[LEVEL], row[UNROLL] = 2, 1
    schedule = Schedule(row)
    assert GRAPH_FEATURES.is_legal(schedule)
    (found,) = features_of(GRAPH_FEATURES, schedule.row[None])
    parts = iter(np.split(found, np.cumsum([1 + NUM_TERMS, len(KNOBS), 3 * MAX_AXES, 3 * MAX_AXES, 3, 6, 2, 2, 5, MAX_AXES])))
    model, knobs, tiles, trips, padding, areas, rest, vectors, held, twos = (next(parts) for _ in range(10))
    latency, floor = GRAPH_FEATURES.latency(schedule), roofline_floor(GRAPH_FEATURES.operator, GRAPH_FEATURES.hardware)
    np.testing.assert_allclose(model[0], np.log(latency / floor), rtol=1e-5)
    terms = np.array(list(GRAPH_FEATURES.terms(schedule).values()))
    np.testing.assert_allclose(model[1:], np.log(np.maximum(terms / latency, 1e-4)), rtol=1e-4)
    assert knobs.tolist() == [float(knob.values[schedule.row[knob.place]]) for knob in KNOBS]
    np.testing.assert_allclose(tiles.reshape(3, -1)[:, AXES], np.log2([[4, 16, 4], [8, 16, 20], [16, 48, 20]]), rtol=1e-6)
    np.testing.assert_allclose(trips.reshape(3, -1)[:, AXES], np.log2([[2, 1, 5], [2, 3, 1], [3, 1, 1]]), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(padding, np.log2([1.0, 1.0, 48 / 40]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(areas, np.log2([64, 128, 768, 4, 20, 20]), rtol=1e-6)
    assert rest.tolist() == [4 / 16, 0.0] and vectors.tolist() == [4.0, 1.0] and twos[AXES].tolist() == [3.0, 4.0, 2.0]
    l1 = next(level.capacity for level in GRAPH_FEATURES.hardware.memory if level.name == "l1")
    np.testing.assert_allclose(held[0], np.log2(4 * (4 * 4 + 4 * 16 + 4 * 16) / l1), rtol=1e-3)
