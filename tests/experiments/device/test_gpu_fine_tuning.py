"""Fine-tuning on a device, over one that answers at once: order of arrival, kills, stragglers, failures, what a folder holds."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

pytest.importorskip("torch")

import torch  # noqa: E402

from agents.columns.policy import load_columns  # noqa: E402
from agents.policies.card import read_card  # noqa: E402
from agents.policies.training_tasks import changed_tasks  # noqa: E402
from experiments.common.journal import read_rows  # noqa: E402
from experiments.device.conclusions import conclusions  # noqa: E402
from experiments.device.context import Context  # noqa: E402
from experiments.device.report import markdown  # noqa: E402
from experiments.device.runner import DONE, Stage, run_stage  # noqa: E402
from experiments.device.stages import contests, fine_tuning, headline  # noqa: E402
from experiments.device.table import CONF, read_experiment  # noqa: E402
from experiments.device.work.fine_tuning_folder import over_fastest  # noqa: E402
from experiments.fine_tuning import arrivals  # noqa: E402
from experiments.fine_tuning.arrivals import ArrivingLearner, Asked  # noqa: E402
from experiments.training.operators.halves import halves  # noqa: E402
from gensor_gym import hardware, operators  # noqa: E402
from gensor_gym.construction import ConstructionGraph  # noqa: E402
from tests.support.fine_tuning_fakes import GEMMS, SETTINGS, FakeGpu, devices, seconds_of  # noqa: E402
from tests.support.policies_made import make_columns  # noqa: E402
from tests.support.thorough import thorough_but  # noqa: E402

HW = hardware.get("h100")
COLUMNS = {**SETTINGS["columns"], "width": 8}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy") / "p0"
    make_columns(folder, 0)
    return folder


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch, policy: Path) -> dict:
    """The settings that the stage reads; a test may change them."""
    settings = {**SETTINGS, "checkpoint": str(policy)}
    monkeypatch.setattr(fine_tuning, "device_backends", devices)
    monkeypatch.setattr(contests, "device_backends", devices)
    monkeypatch.setattr(fine_tuning, "device_name", lambda hw: "NVIDIA H100")
    monkeypatch.setattr(fine_tuning, "read_settings", lambda: settings)
    for name, value in {"fails": 3, "slow": False, "dies_at": 0, "trials": [], "first": ""}.items():
        monkeypatch.setattr(FakeGpu, name, value)
    FakeGpu.enough.clear()
    return settings


def at(folder: Path, run: str = "run1", seed: int = 0) -> Context:
    return Context(str(folder), str(folder / f"scratch of {run}"), run, 300.0, "h100", seed)


def learner(seed: int = 0) -> ArrivingLearner:
    graphs = [ConstructionGraph(text, HW, "gensor") for text in GEMMS]
    return ArrivingLearner(COLUMNS, graphs, 6, seed)


def line(asked: Asked) -> dict:
    failed = int(asked.digest[:4], 16) % 3 == 0
    seconds = None if failed else seconds_of(asked.digest)
    return {"operator": asked.operator, "schedule": str(asked.schedule), "digest": asked.digest, "seconds": seconds}


def play(found: ArrivingLearner, count: int, last_first: bool = False) -> list[dict]:
    """Kernels arrive in the order in which they were asked for, or the last one first."""
    lines = []
    for _ in range(count):
        lines.append(line(list(found.pending.values())[-1 if last_first else 0]))
        found.arrive(lines[-1])
        found.ask()
    return lines


def weights(found: ArrivingLearner) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in found.network.parameters()])


def rows_of(folder: Path) -> list[dict]:
    return read_rows(folder / "fine_tuning" / "measured.jsonl")


@pytest.mark.thorough
def test_what_is_learned_follows_from_seed_and_order_of_arrival() -> None:
    one, same, other_order, other_seed = learner(), learner(), learner(), learner(1)
    for found in (one, same, other_order, other_seed):
        found.resume(None, [])
        assert len(found.pending) >= 6
    before = weights(one)
    lines = play(one, 30)
    assert play(same, 30) == lines and torch.equal(weights(one), weights(same)) and list(one.pending) == list(same.pending)
    assert len({row["digest"] for row in lines}) == 30 and any(row["seconds"] is None for row in lines)
    assert not torch.equal(weights(one), before)
    assert {row["operator"] for row in lines} == set(GEMMS)
    play(other_order, 30, last_first=True)
    play(other_seed, 30)
    assert not torch.equal(weights(one), weights(other_order)) and not torch.equal(weights(one), weights(other_seed))


@pytest.mark.parametrize("saved_at", thorough_but([None, 0, 7, 17], None, 7))
def test_one_that_was_stopped_is_brought_back_number_for_number(saved_at: int | None) -> None:
    """By what arrived alone, or from any state on the way; what follows is what would have followed."""
    whole, stopped, state = learner(), learner(), None
    for found in (whole, stopped):
        found.resume(None, [])
    lines = play(whole, 17)
    if saved_at is not None:
        play(stopped, saved_at)
        state = stopped.state()
    again = learner()
    again.resume(state, lines)
    assert list(again.pending) == list(whole.pending)
    assert play(again, 12) == play(whole, 12)
    assert torch.equal(weights(again), weights(whole))
    with pytest.raises(ValueError, match="17 arrivals, and there are 3 lines"):
        learner().resume({"arrived": 17}, lines[:3])


@pytest.mark.thorough
def test_the_window_stays_full_and_an_exhausted_space_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "IDLE", 8)
    found = ArrivingLearner(COLUMNS, [ConstructionGraph("gemm(m=2, n=3, k=1)", HW, "gensor")], 500, 0)
    found.resume(None, [])
    few = len(found.pending)
    assert 0 < few < 500
    play(found, few)
    assert not found.pending and not found.ask()
    with pytest.raises(ValueError, match="window is 0"):
        ArrivingLearner(COLUMNS, [ConstructionGraph(GEMMS[0], HW, "gensor")], 0, 0)


def test_the_stage_measures_learns_and_leaves_a_policy(tmp_path: Path, policy: Path) -> None:
    found = fine_tuning.run(at(tmp_path))
    rows = rows_of(tmp_path)
    assert 40 <= len(rows) == found["measured"] == found["learned_from"] == len(set(FakeGpu.trials))
    assert len(rows) < 40 + 6 + 4
    assert found["statuses"]["OK"] and found["statuses"]["WRONG_ANSWER"] and found["statuses"]["CRASHED"]
    for row in rows:
        assert row["seconds"] == (seconds_of(row["digest"]) if row["status"] == "OK" else None)
    card = read_card(tmp_path / "fine_tuning")
    told = card["fine_tuned"]
    assert told["measurements"] == len(rows) and told["failed"] == sum(row["seconds"] is None for row in rows)
    assert (told["hardware"], told["trained_for"], told["device"]) == ("h100", "h200", "NVIDIA H100")
    assert told["other_rules"] == [] and told["measured_operators"] == sorted(GEMMS)
    assert card["training_seconds"] > told["trained_on_model_s"] and card["config"]["env"]["hardware"] == "h200"
    before, after = (load_columns(str(folder)).state_dict() for folder in (policy, tmp_path / "fine_tuning"))
    assert any(not torch.equal(before[name], after[name]) for name in before)
    again = learner()
    again.network.load_state_dict(before)
    again.resume(None, rows)
    assert all(torch.equal(after[name], value) for name, value in again.network.state_dict().items())
    assert sorted(path.name for path in (tmp_path / "fine_tuning").iterdir()) == [
        "card.json", "last.zip", "measured.jsonl", "policy.safetensors",
    ]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("kills", [1, 2])
def test_a_killed_stage_loses_no_measurement(kills: int, tmp_path: Path, policy: Path) -> None:
    """SIGKILL, between two saves; the runner starts it again, and the policy is that of all lines in their order."""
    shutil.copytree(policy, tmp_path / "p0")
    killed = ("killed_once", "killed_twice")[kills - 1]
    outcome = run_stage(Stage("fine_tuning", f"tests.support.fine_tuning_fakes:{killed}", 1.0), at(tmp_path), 240.0)
    assert (outcome.status, outcome.attempts) == (DONE, kills + 1), outcome.error
    rows = rows_of(tmp_path)
    assert len(rows) >= 40 and len({row["digest"] for row in rows}) == len(rows)
    again = learner()
    again.network.load_state_dict(load_columns(str(policy)).state_dict())
    again.resume(None, rows)
    found = load_columns(str(tmp_path / "fine_tuning")).state_dict()
    assert all(torch.equal(found[name], value) for name, value in again.network.state_dict().items())


@pytest.mark.thorough
def test_the_next_call_goes_on(tmp_path: Path, device: dict) -> None:
    fine_tuning.run(at(tmp_path))
    before = rows_of(tmp_path)
    device["measurements"] = 60
    found = fine_tuning.run(at(tmp_path, "run2"))
    rows = rows_of(tmp_path)
    assert rows[: len(before)] == before and len(rows) >= 60 and found["this_run"] == len(rows) - len(before)
    assert len(FakeGpu.trials) == len(set(FakeGpu.trials)) == len(rows), "no kernel twice"
    device["measurements"] = 10
    assert fine_tuning.run(at(tmp_path, "run3"))["this_run"] == 0


@pytest.mark.thorough
def test_a_straggler_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeGpu, "slow", True)
    monkeypatch.setattr(fine_tuning, "compilers", lambda spare: 3)
    fine_tuning.run(at(tmp_path))
    order = [row["digest"] for row in rows_of(tmp_path)]
    assert FakeGpu.enough.is_set() and FakeGpu.first in order and order.index(FakeGpu.first) >= 20


@pytest.mark.thorough
def test_where_all_kernels_fail_the_stage_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: dict) -> None:
    monkeypatch.setattr(FakeGpu, "fails", 1)
    device["measurements"] = 200
    with pytest.raises(RuntimeError, match="first 48 kernels all failed, the last with (WRONG_ANSWER|CRASHED)"):
        fine_tuning.run(at(tmp_path))
    assert len(rows_of(tmp_path)) >= 48


@pytest.mark.thorough
def test_what_is_begun_with_is_kept_to(tmp_path: Path, device: dict) -> None:
    fine_tuning.run(at(tmp_path))
    with pytest.raises(ValueError, match="seed 0, now 1.*another folder"):
        fine_tuning.run(at(tmp_path, seed=1))
    device["columns"] = {**device["columns"], "updates": 2}
    with pytest.raises(ValueError, match="settings"):
        fine_tuning.run(at(tmp_path))


@pytest.mark.thorough
def test_another_model_is_a_choice(tmp_path: Path, device: dict) -> None:
    device["other_model"] = False
    with pytest.raises(ValueError, match="trained for h200, and this is h100.*other_model: true"):
        fine_tuning.run(at(tmp_path))
    assert not FakeGpu.trials
    assert fine_tuning.run(replace(at(tmp_path), hardware="h200"))["trained_for"] == "h200"


def test_operators_are_chosen_by_the_rule() -> None:
    """Of the train part alone, quick ones, 40 to 60 of them, some in half precision; the headline's are of the test part."""
    settings = yaml.safe_load(fine_tuning.FILE.read_text())
    for name in ("h100", "h200"):
        found = fine_tuning.chosen(settings, hardware.get(name))
        assert 40 <= len(found) <= 62 and len(set(found)) == len(found)
        assert {operators.part_of(op) for op in found} == {"train"}
        assert 10 <= sum(op.dtype == "float16" for op in found) and max(op.compulsory_bytes for op in found) <= 32e6
        assert {op.name for op in found} >= {"gemm", "conv2d", "gemv", "batched_gemm", "reduce_sum", "max_pool2d"}
    contest = read_experiment(headline.EXPERIMENT)
    assert len(contest.operators) >= 8 and {operators.part_of(op) for op in contest.operators} == {"test"}
    assert len(contest.seeds) == 2 and 10 <= contest.trials <= 16
    with pytest.raises(ValueError, match="train part, found \\['test'\\]"):
        fine_tuning.chosen({**settings, "operators": ["gemm(m=128, n=3072, k=768)"]}, HW)
    with pytest.raises(ValueError, match="found none"):
        fine_tuning.chosen({**settings, "microseconds": [1e6, 2e6]}, HW)


def test_the_shipped_policy_is_the_one_of_the_files() -> None:
    settings = yaml.safe_load(fine_tuning.FILE.read_text())
    card = read_card(Path(settings["checkpoint"]))
    made = yaml.safe_load((CONF / "train_columns_extended.yaml").read_text())
    given = operators.resolve("split/v1/train")
    bytes_of = [op for op in given if "groups" not in dict(op.arguments) or dict(op.arguments)["groups"] == 1]
    assert made["operators"] == ["split/v1/train", *map(str, [*halves(given), *halves(bytes_of, "int8")])] == card["operators"]
    assert card["config"]["env"]["space"] == "extended" and card["config"]["env"]["hardware"] == "h100"
    assert changed_tasks(card) == []
    plain = yaml.safe_load((CONF / "fine_tune.yaml").read_text())
    assert settings["columns"] == plain["columns"]
    strategies = read_experiment(headline.EXPERIMENT).strategies
    assert list(strategies)[0] == "markov_ext" and strategies["columns"][1]["checkpoint"] == settings["checkpoint"]
    assert strategies[headline.TUNED] == ("columns", {**strategies["columns"][1], "checkpoint": "results/h100/fine_tuning"})


def test_halves_keep_all_but_the_type() -> None:
    given = operators.resolve(["gemm(m=64, n=32, k=16)+bias+relu", "gemv(m=8, k=8)", 'gemm(m=8, n=8, k=8, dtype="int8")'])
    assert list(map(str, halves(given))) == ['gemm(m=64, n=32, k=16, dtype="float16")+bias+relu']


def test_over_fastest_comes_down_where_kernels_get_faster() -> None:
    rows = [{"operator": name, "seconds": 2.0 ** (8 - i)} for i in range(8) for name in "ab"]
    assert over_fastest([*rows, {"operator": "a", "seconds": None}]) == pytest.approx([2.0 ** (7 - i) for i in range(8)])
    assert over_fastest(rows[:7]) == []


@pytest.mark.thorough
def test_the_headline_compares_with_the_policy_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fine_tuning.run(at(tmp_path))
    small = {"walkers": 4, "steps": 32, "refiners": 2, "refine_steps": 8, "descents": 2, "columns": 1}
    given = read_experiment(headline.EXPERIMENT)
    policy = {"space": "gensor", "episodes": 8}
    contest = replace(
        given,
        operators=tuple(map(operators.parse, ("gemv(m=96, k=64)", "reduce_sum(m=64, k=96)"))), trials=3,
        strategies={
            "markov_ext": ("markov_ext", {**small, "space": "gensor"}),
            headline.TUNED: ("columns", {**policy, "checkpoint": "replaced"}),
        },
    )  # fmt: skip
    monkeypatch.setattr(headline, "read_experiment", lambda file: contest)
    monkeypatch.setattr(FakeGpu, "fails", 0)
    assert headline.contest(tmp_path).strategies[headline.TUNED][1]["checkpoint"] == str(tmp_path / "fine_tuning")
    found = headline.run(at(tmp_path))
    assert found["not_run"] == {} and found["trials"] == 2 * 2 * 2 * 3
    assert found["policy"]["learned_from"] == len(rows_of(tmp_path))
    assert found["over_first"]["reference"] == "markov_ext" and found["over_first"]["pairs"] == 4
    stage = {"status": "done", "seconds": 1.0, "attempts": 1, "error": "", "result": found}
    text = markdown({"hardware": "h100", "machine": {"gpu": {}}, "stages": {"headline": stage}})
    assert "of `markov_ext`'s time" in text and "kernels measured" in text
    shutil.rmtree(tmp_path / "fine_tuning")
    load_columns.cache_clear()
    assert "no policy at" in headline.run(at(tmp_path, "run2"))["not_run"][headline.TUNED]


@pytest.mark.parametrize(
    ("ratio", "low", "high", "p", "said"),
    [
        (0.90, 0.85, 0.95, 0.01, "0.900 [0.850, 0.950] of `m`'s time: 10.0 % faster (p 0.01 after Holm)."),
        (1.20, 1.10, 1.30, 0.03, "20.0 % slower (p 0.03"),
        (0.97, 0.90, 1.05, 0.4, "0.970 [0.900, 1.050] of `m`'s time: not told apart."),
        (0.90, 0.85, 0.99, 0.3, "not by the sign-flip test (p 0.3 after Holm): not told apart."),
    ],
)
def test_conclusions_say_when_nothing_is_told_apart(ratio: float, low: float, high: float, p: float, said: str) -> None:
    line = {"ratio": ratio, "low": low, "high": high, "p_holm": p}
    (found,) = conclusions({"reference": "m", "strategies": {"a": line}})
    assert found.endswith(said) or said in found
    assert "Nothing can be said" in conclusions({})[0]


def test_cards_are_json(tmp_path: Path) -> None:
    """What comes back from a device stays small and readable."""
    fine_tuning.run(at(tmp_path))
    card = json.loads((tmp_path / "fine_tuning" / "card.json").read_text())
    assert np.isfinite(card["fine_tuned"]["seconds"])
    assert max(path.stat().st_size for path in (tmp_path / "fine_tuning").iterdir()) < 16 << 20
