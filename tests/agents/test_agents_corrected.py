"""A correction learned from measurements ranks kernels of operators that it has not seen; a strategy uses it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agents import get_strategy
from agents.hybrids.adapted import SHIPPED
from agents.hybrids.correction import Correction, centred, load_correction
from agents.hybrids.program_features import features_of
from agents.runs.jobs import _training_seconds as training_seconds
from agents.training.learn_correction import Observed, elsewhere, fitted, learn, observations, rank_correlation, regrets
from gensor_gym import hardware, operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.foreign import read_json
from gensor_gym.graph.knobs import KNOB_INDEX
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, MAX_LEVELS, ROW, SPATIAL_SLOTS, TILE
from gensor_gym.measure.records import measured

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
