"""The study's operators keep their rules; its scores and its answer are as the plan says, on rows whose answer is known."""

from __future__ import annotations

import json
import math
import shutil
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from agents import get_strategy
from agents.runs.journal import Journal
from agents.runs.settings import ROOT
from experiments.device.archive.arms import Arm, KernelsByModel, learned_from, proposed, read_study, study_of, winners
from experiments.evidence import __main__ as evidence
from experiments.evidence import later_run
from experiments.evidence.ship import write_rows
from experiments.studies.headline import chosen, cpu, page
from experiments.studies.headline.scores import FIRST, Timed, read
from gensor_gym import ConstructionGraph, operators
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.workers.requests import Built

OPS = [f"gemm(m={64 * n}, n=64, k=64)" for n in range(1, 25)]


def test_the_file_is_what_the_rules_give() -> None:
    assert chosen.FILE.read_text(encoding="utf-8") == chosen.text(chosen.chosen())


def test_no_operator_is_near_one_that_was_trained_on() -> None:
    texts = read_study().operators
    assert len(texts) >= 175
    trained = operators.resolve("split/v1/train")
    for text in texts:
        op = operators.parse(text)
        assert not any(chosen.within(op, other, 2.0) for other in trained), text
    first = {operators.parse(text).dtype for text in texts[: read_study().deep]}
    assert first == {"float32", "float16", "bfloat16", "int8"}


@pytest.mark.thorough
def test_operators_near_variants_of_training_are_known() -> None:
    assert chosen.listed(chosen.NEAR_VARIANTS) == chosen.near_variants()
    assert set(chosen.listed(chosen.NEAR_VARIANTS)) < set(read_study().operators)


def test_operators_near_those_whose_times_were_learned_from_are_known() -> None:
    learned = learned_from(chosen.CORRECTION)
    assert chosen.listed(chosen.NEAR_TIMED) == chosen.near_timed()
    assert learned < set(read_study().operators) and not learned & set(chosen.listed(chosen.NEAR_TIMED))
    assert len(read_study().operators) - len(learned) == 111 and len(chosen.listed(chosen.NEAR_TIMED)) == 44


def test_an_operator_whose_times_were_learned_from_does_not_count() -> None:
    learned = min(learned_from(chosen.CORRECTION), key=len)
    arms = [Arm("markov_ext", "random_walk"), Arm("in_turn", "random_walk")]
    trained = Arm("in_turn", "corrected", 0, {"proposer": "greedy", "correction": chosen.CORRECTION})
    seen = [row for row, _ in proposed(learned, trained, "h100", 1)]
    fresh = [row for op in OPS[:2] for arm in arms for row, _ in proposed(op, arm, "h100", 1)]
    begun = [row for row, _ in proposed(learned, arms[0], "h100", 1)]
    assert [row.get("seen") for row in [*seen, *begun]] == [True, None]
    rows = [*begun, *seen, *fresh]
    trials = {(row["operator"], row["digest"]): {"status": "OK", "samples": [1e-6]} for row in rows}
    assert Timed(rows, trials, {}).whole == [str(operators.parse(op)) for op in OPS[:2]]


def test_twins_are_within_a_factor_on_every_axis() -> None:
    one = operators.gemm(m=64, n=64, k=64)
    assert chosen.within(one, operators.gemm(m=128, n=32, k=64, dtype="float16"), 2.0)
    assert not chosen.within(one, operators.gemm(m=129, n=64, k=64), 2.0)
    assert not chosen.within(one, operators.batched_gemm(b=1, m=64, n=64, k=64), 2.0)


def rows(folder: Path, faster: float, drop: str = "", fail: str = "") -> Path:
    """A study in which the policy's programs take `faster` of the traverser's; some proposals were not tried, or failed."""
    rng = np.random.default_rng(0)
    proposals, trials, together = [], [], []
    for op in OPS:
        base, samples = rng.uniform(1e-5, 1e-4), {}
        for arm, seed in [("markov_ext", 0), ("random", 0), ("random", 1), *(("columns", s) for s in range(5))]:
            for rank in range(1, FIRST + 1):
                digest = f"{arm} {seed} {rank}"
                factor = {"markov_ext": 1.0, "random": 4.0, "columns": faster * math.exp(rng.normal(0, 0.02))}[arm]
                seconds = base * factor * (1.5 if rank != 2 else 1.0)  # the second is the fastest
                proposals.append({
                    "group": "study", "operator": op, "arm": arm, "seed": seed, "rank": rank, "schedule": "x", "digest": digest,
                    "status": "", "error": "", "construct_s": 0.5, "evaluations": 10,
                })  # fmt: skip
                bad = fail == arm and op == OPS[0]
                if not (drop == arm and op == OPS[0] and rank == FIRST):
                    status = "WRONG_ANSWER" if bad else "OK"
                    trials.append({"operator": op, "digest": digest, "status": status, "samples": [] if bad else [seconds] * 5})
                if rank == 2 and not bad:
                    samples[digest] = [seconds] * 9
        together.append({"operator": op, "samples": {**samples, "torch": [base] * 9, "torch.nhwc": [base / 2] * 9}})
    for name, found in (("proposals", proposals), ("trials", trials), ("together", together)):
        write_rows(folder / f"{name}.jsonl.gz", found)
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize(("faster", "verdict"), [(0.8, "Yes"), (1.25, "No"), (1.0, "Neither")])
def test_the_answer_follows_the_rows(tmp_path: Path, faster: float, verdict: str) -> None:
    line = page.primary(read(rows(tmp_path, faster)))
    assert line.operators == len(OPS)
    assert line.low <= line.ratio <= line.high
    assert line.ratio == pytest.approx(faster, rel=0.02)
    assert page.answer(line).startswith(f"**{verdict}")


def test_an_operator_that_was_cut_does_not_count(tmp_path: Path) -> None:
    timed = read(rows(tmp_path, 0.8, drop="random"))
    assert OPS[0] not in timed.whole
    assert page.primary(timed).operators == len(OPS) - 1


def test_an_arm_without_a_time_has_the_slowest(tmp_path: Path) -> None:
    timed = read(rows(tmp_path, 0.8, fail="columns"))
    assert math.isinf(timed.seconds(OPS[0], "columns", 0, FIRST))
    assert math.exp(timed.logs("columns", OPS[:1], FIRST)[0, 0]) == pytest.approx(timed.slowest[OPS[0]])
    assert page.compared("", timed, timed.whole, FIRST, filled=False).operators == len(OPS) - 1
    assert timed.statuses()["columns"]["WRONG_ANSWER"] == 5 * FIRST


def test_an_operator_on_which_nothing_ran_does_not_count(tmp_path: Path) -> None:
    timed = read(rows(tmp_path, 0.8, fail=""))
    dead = {
        place: {**row, "status": "CRASHED", "samples": []} if place[0] == OPS[0] else row for place, row in timed.trials.items()
    }
    left = Timed(timed.proposals, dead, timed.together)
    assert len(left.tried) == len(OPS) and len(left.whole) == len(OPS) - 1
    assert page.primary(left).operators == len(OPS) - 1


def test_an_operator_for_which_a_seed_has_proposed_nothing_does_not_count(tmp_path: Path) -> None:
    timed = read(rows(tmp_path, 0.8))
    fewer = [row for row in timed.proposals if (row["operator"], row["arm"], row["seed"]) != (OPS[2], "columns", 4)]
    assert Timed(fewer, timed.trials, timed.together).whole == [op for op in OPS if op != OPS[2]]


def test_interleaved_rounds_count_for_four_programs_and_whole(tmp_path: Path) -> None:
    """The first program alone has its trial's time; rounds without a winner are not mixed with trials."""
    timed = read(rows(tmp_path, 0.8))
    best = "markov_ext 0 2"
    slower = {op: {**row, "samples": {name: [3.0 * s for s in values] for name, values in row["samples"].items()}}
              for op, row in timed.together.items()}  # fmt: skip
    lacking = slower[OPS[1]]["samples"]
    del lacking["random 1 2"]
    again, trial = Timed(timed.proposals, timed.trials, slower), timed.trials[OPS[0], best]["samples"][0]
    assert again.seconds(OPS[0], "markov_ext", 0, FIRST) == pytest.approx(3.0 * trial)
    assert again.seconds(OPS[0], "markov_ext", 0, 1) == pytest.approx(1.5 * trial)
    assert again.seconds(OPS[1], "markov_ext", 0, FIRST) == timed.seconds(OPS[1], "markov_ext", 0, FIRST)


@pytest.mark.thorough
def test_the_page_of_a_day_begins_with_the_answer(tmp_path: Path) -> None:
    day = tmp_path / "raw" / "2026-11-27"
    rows(day, 0.8)
    names = ("driver", "cuda", "python", "cupy", "torch", "triton", "cores", "clocks", "others", "commit", "date")
    about = {"device": "NVIDIA H200", "files": {}, "also": {}} | dict.fromkeys(names, "x")
    (day / "conditions.json").write_text(json.dumps(about), encoding="utf-8")
    assert evidence.main([str(tmp_path)]) == 0
    text = (tmp_path / "2026-11-27.md").read_text(encoding="utf-8")
    assert (
        text.startswith("# The device on 2026-11-27\n\n**Yes: the learned policy beats the traverser**") and "NVIDIA H200" in text
    )
    assert (tmp_path / "2026-11-27_study.png").exists() and "(2026-11-27_study.png)" in text


def test_first_programs_and_torch_are_told(tmp_path: Path) -> None:
    timed = read(rows(tmp_path, 0.8))
    one, four = (timed.seconds(OPS[1], "markov_ext", 0, k) for k in (1, FIRST))
    assert one == pytest.approx(1.5 * four)
    assert timed.torch(OPS[1]) == pytest.approx(four / 2)


def test_rows_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected proposals"):
        read(tmp_path)


@pytest.mark.thorough
def test_the_shipped_page_is_that_of_its_rows(tmp_path: Path) -> None:
    shipped = ROOT / "results" / "h200"
    shutil.copytree(shipped / "raw", tmp_path / "h200" / "raw")
    made = [name for name in later_run.write(tmp_path / "h200") if name.endswith(".md")]
    assert made
    for name in made:
        assert (tmp_path / "h200" / name).read_text() == (shipped / name).read_text()


class Machine:
    """A backend whose kernels take as long as their digest says."""

    def __init__(self) -> None:
        self.timed: list[str] = []

    def compile(self, kernels: list) -> list[Built]:
        return [Built(kernel, "") for kernel in kernels]

    def trial(self, built: Built, _hw: object) -> Measurement:
        self.timed.append(built.kernel.digest)
        return Measurement(Status.OK, (1e-6 * (1 + int(built.kernel.digest, 16) % 100),) * 5, digest=built.kernel.digest)

    def compare(self, kernels: dict, _hw: object, rounds: int, torch: bool) -> dict[str, list[float]]:
        return {name: [1e-6 * (1 + int(name, 16) % 100)] * rounds for name in kernels} | {"torch": [1e-5] * rounds}


def timed_here(folder: Path, machine: Machine, operators_: list[str]) -> list[str]:
    """Run the study of a CPU; returns the operators that were gone through."""
    arms = {"markov_ext": {"steps": 8, "walkers": 2}, "learned": {"of": "random", "seeds": [0, 1]}, "roller": {}}
    content = {"hardware": "cascade_lake", "arms": arms, "programs": 4, "deep": 0, "deep_programs": 4, "rounds": 3}
    fields = {"proposals": ("operator", "arm", "seed", "rank"), "trials": ("operator", "digest"), "together": ("operator",)}
    with ExitStack() as stack:
        journals = [stack.enter_context(Journal(folder / f"{name}.jsonl", of)) for name, of in fields.items()]
        whole = cpu.CpuStudy(study_of(content, operators_), machine, *journals)  # type: ignore[arg-type]
        for place in range(len(operators_)):
            whole.timed(place, whole.ready(place))
    return operators_


def test_a_study_of_a_cpu_goes_on_and_has_a_page(tmp_path: Path) -> None:
    ops, machine = ["gemm(m=24, n=16, k=40)", "batched_gemm(b=2, m=16, n=8, k=24)"], Machine()
    timed_here(tmp_path, machine, ops[:1])
    before = len(machine.timed)
    timed_here(tmp_path, machine, ops)
    timed_here(tmp_path, machine, ops)
    found = read(tmp_path)
    assert before > 4 and len(machine.timed) == len(set(machine.timed)) == len(found.trials)
    assert found.learned == "learned" and found.whole == ops
    assert found.arms == {"markov_ext": [0], "learned": [0, 1], "roller": [0]}
    assert {name for row in found.together.values() for name in row["samples"]} > {"torch"}
    (tmp_path / "facts.jsonl").write_text('{"processor": "a processor", "date": "today", "code": "1"}\n')
    cpu.write_page(tmp_path)
    text = (tmp_path / "study.md").read_text()
    assert "a processor, one thread, today" in text and "`learned` has 2 training seeds" in text
    assert "classes without recorded times" in text and (tmp_path / "cpu_study.png").exists()


def test_winners_are_the_fastest_of_the_first_programs_each_once() -> None:
    def row(arm: str, seed: int, rank: int, digest: str) -> dict:
        return {"operator": "x", "arm": arm, "seed": seed, "rank": rank, "digest": digest}

    seconds = {"a": 4.0, "b": 2.0, "c": 3.0, "d": 1.0}
    trials = {("x", name): {"status": "OK", "samples": [value] * 3} for name, value in seconds.items()}
    trials["x", "e"] = {"status": "WRONG_ANSWER", "samples": []}
    rows = [row("one", 0, 1, "a"), row("one", 0, 2, "b"), row("one", 0, 3, "d"), row("two", 0, 1, "c"), row("two", 0, 2, "e"),
            row("two", 1, 1, "b"), row("three", 0, 1, "e")]  # fmt: skip
    assert [winners(rows, trials, k) for k in (1, 2, 3)] == [["a", "c", "b"], ["b", "c"], ["d", "c", "b"]]


def test_a_learned_arm_proposes_by_its_own_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The analytic model would bring back its own order, since every proposal counts as measured by the model that judges."""
    strategy = get_strategy("corrected", proposer="greedy", correction="made up")
    monkeypatch.setattr("experiments.device.archive.arms.learned_from", lambda _: frozenset[str]())
    monkeypatch.setattr(type(strategy), "predict", lambda _, graph, rows: 1.0 / graph.latencies(rows))
    arm = Arm("learned", "corrected", hyperparameters={"proposer": "greedy", "correction": "made up"})
    graph = ConstructionGraph(OPS[0], "cascade_lake", "extended")
    found = [graph.latency(Schedule.parse(row["schedule"])) for row, _ in proposed(OPS[0], arm, "cascade_lake", 6)]
    whole = get_strategy("corrected", proposer="greedy").construct(graph, np.random.default_rng(0)).latencies  # type: ignore[attr-defined]
    assert found[0] == max(whole)
    backend = KernelsByModel(strategy.predict)  # type: ignore[attr-defined]
    (measured,) = backend.measure(graph.operator, [graph.initial()], graph.hardware)
    assert measured.seconds == 1.0 / graph.latency(graph.initial())


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(path.parent.name for path in (ROOT / "results/cpu_study").glob("*/study.md")))
def test_the_shipped_page_of_a_cpu_is_that_of_its_rows(name: str, tmp_path: Path) -> None:
    shipped = ROOT / "results" / "cpu_study" / name
    for path in shipped.glob("*.jsonl*"):
        shutil.copy(path, tmp_path)
    cpu.write_page(tmp_path)
    assert (tmp_path / "study.md").read_text() == (shipped / "study.md").read_text()
