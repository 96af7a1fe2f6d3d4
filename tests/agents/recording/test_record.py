"""Recording tables on this machine, and adapting to it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from agents import get_strategy
from agents.cli.arguments import compose
from agents.hybrids.correction import load_correction
from agents.hybrids.here import adapted_folder
from agents.optimizer import Asked
from agents.recording import adapt, collect, record, record_table
from agents.recording.ahead import prepared
from agents.recording.collect import FIELDS
from agents.recording.passes import ATTEMPTS, Plan, Recording, backend_of
from agents.runs.journal import Journal
from agents.runs.schedules import schedules_of
from agents.strategy import default_for
from agents.training.operators.chosen import Chosen
from gensor_gym import ConstructionGraph, hardware, operators
from gensor_gym.dataflow.resolve import resolve_computation
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records import measured
from gensor_gym.measure.records.backend import RecordedBackend, passes_of
from gensor_gym.measure.records.store import Store
from gensor_gym.measure.records.tables import read_table
from tests.agents.recording.test_measured import Machine, eight
from tests.support.recordings import OPERATOR, MadeUpWorker, made_up_backend

HW = hardware.get("cascade_lake")
DEVICE = f"made up x{HW.units}"
PLAN = Plan(operators.parse("gemv(m=8, k=16)"), HW, "compact", anchor=10)


def recording(folder: Path, plan: Plan = PLAN) -> Recording:
    return Recording(plan, Store(folder / "s.sqlite"), DEVICE, folder / "anchor.jsonl")


def test_every_program_has_the_samples_of_every_pass(tmp_path: Path) -> None:
    worker, seen = MadeUpWorker(), list[Measurement]()
    one = recording(tmp_path)
    assert one.left == 3 * one.programs
    one.run(made_up_backend(worker), seen.append)
    assert one.left == 0 and len(one.schedules) == 40
    good = [m for m in one.known.values() if m.status is Status.OK]
    assert len(good) >= 0.8 * one.programs
    for m in good:
        assert passes_of(m) == [1] * 5 + [2] * 5 + [3] * 5 and len(m.samples) == 15
        assert m.conditions["compile_seconds"] == 0.25
        assert len(m.conditions["run_seconds"]) == 3  # type: ignore[arg-type]
        assert 0.25 < m.conditions["trial_seconds"] < 0.3  # type: ignore[operator]
    wrong = [m for m in one.known.values() if m.status is Status.WRONG_ANSWER]
    assert len(seen) == 3 * len(good) + len(wrong), "a program whose answer is wrong is tried once"
    assert len(worker.asked) - len(seen) == len(one.anchors) == -(-len(seen) // PLAN.anchor)


def test_passes_go_in_orders_of_their_own(tmp_path: Path) -> None:
    worker = MadeUpWorker()
    one = recording(tmp_path, Plan(PLAN.operator, HW, "compact", anchor=10**6))
    one.run(made_up_backend(worker))
    asked = [d for d in worker.asked[1:] if one.known[d].status is Status.OK]
    length = len(asked) // 3
    orders = [asked[i * length : (i + 1) * length] for i in range(3)]
    assert len({tuple(order) for order in orders}) == 3 and len({tuple(sorted(order)) for order in orders}) == 1


def test_a_recording_goes_on_where_it_was(tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    worker, counts = MadeUpWorker(), []
    whole = recording(tmp_path / "whole")
    whole.run(made_up_backend(MadeUpWorker()))
    for stop in (1, 30, 17, 10**6):
        left = iter(range(stop))

        def on_trial(_: Measurement, left: Any = left) -> None:
            if next(left, None) is None:
                raise Stopped

        one = recording(tmp_path)
        counts.append(one.left)
        try:
            one.run(made_up_backend(worker), on_trial)
        except Stopped:
            continue
    assert counts == sorted(counts, reverse=True) and counts[0] > counts[1] > counts[2] > counts[3]
    again = recording(tmp_path)
    assert again.left == 0 and {d: len(m.samples) for d, m in again.known.items()} == {
        d: len(m.samples) for d, m in whole.known.items()
    }
    anchors = len(again.anchors)
    trials = sum(3 if m.status is Status.OK else 1 for m in again.known.values())
    assert len(worker.asked) == trials + anchors, "something was measured twice"


def test_a_crash_keeps_what_was_good_and_is_tried_again(tmp_path: Path) -> None:
    plain = recording(tmp_path / "plain")
    plain.run(made_up_backend(MadeUpWorker()))
    good = [d for d, m in plain.known.items() if m.status is Status.OK]
    once, always = good[1], good[2]
    one = recording(tmp_path)
    one.run(made_up_backend(MadeUpWorker(moods={once: 1, always: 100})))
    assert one.known[once].status is Status.OK and len(one.known[once].samples) == 15
    assert one.known[once].conditions["lost"] == 1
    assert one.known[always].status is Status.CRASHED and one.known[always].conditions["lost"] == ATTEMPTS
    assert one.left == 0


def test_the_table_is_a_true_environment_of_its_machine(tmp_path: Path) -> None:
    one = recording(tmp_path)
    one.run(made_up_backend(MadeUpWorker()))
    about = record_table.write(record_table.content_of(one), tmp_path)
    assert about["complete"] and about["samples"] == 15 and about["schedules"] == 40
    table = read_table(tmp_path / "gemv_m8_k16.parquet")
    assert table.about["optimum"] == about["optimum"] and hardware.from_json(table.about["hardware"]) == HW
    for row, digest in zip(table.records, one.digests, strict=True):
        kept, known = row.measurement, one.known[digest]
        assert kept.status is known.status and kept.digest == digest[:16] and passes_of(kept) == passes_of(known)
        assert np.allclose(kept.samples, known.samples, rtol=1e-7)
    backend = RecordedBackend(tmp_path / "gemv_m8_k16.parquet")
    assert [m.status for m in backend.measure(PLAN.operator, one.schedules, HW)] == [
        one.known[d].status for d in one.digests
    ]
    text = (tmp_path / "gemv_m8_k16.md").read_text()
    for words in ("complete: every schedule", "Apache-2.0", f"**{about['optimum']['tied']} schedules", "Noise floor", "made up"):
        assert words in text
    assert 0.005 < float(about["noise"]["cv"]["0.5"]) < 0.02  # one percent of noise was made up


def test_a_table_that_lacks_samples_does_not_say_it_is_complete(tmp_path: Path) -> None:
    one = recording(tmp_path)
    left = iter(range(60))

    def stop(_: Measurement) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        one.run(made_up_backend(MadeUpWorker()), stop)
    about = record_table.write(record_table.content_of(one), tmp_path)
    assert not about["complete"] and "not complete" in (tmp_path / "gemv_m8_k16.md").read_text()
    sampled = recording(tmp_path / "sampled", Plan(PLAN.operator, HW, "gensor", schedules=12))
    sampled.run(made_up_backend(MadeUpWorker()))
    about = record_table.write(record_table.content_of(sampled), tmp_path / "sampled")
    assert about["schedules"] == 12 and about["samples"] == 15 and not about["complete"]


def test_kernels_from_the_cache_are_charged_like_the_others(tmp_path: Path) -> None:
    one = recording(tmp_path)
    one.run(made_up_backend(MadeUpWorker()))
    digest = next(d for d, m in one.known.items() if m.status is Status.OK)
    one.known[digest].conditions["compile_seconds"] = 1e-4
    one.known[digest].conditions["trial_seconds"] = 0.0101
    content = record_table.content_of(one)
    found = {r.measurement.digest: r.measurement.conditions for r in record_table.table_records(content)}[digest[:16]]
    assert found["compile_seconds"] == 0.25 and found["trial_seconds"] == pytest.approx(0.26)
    assert record_table.about_table(content, record_table.table_records(content))["cached_compilations"] == 1


def test_random_schedules_differ_and_repeat() -> None:
    found = schedules_of(operators.parse(OPERATOR), HW, "gensor", 30, seed=1)
    assert len({s.key for s in found}) == 30
    assert found == schedules_of(operators.parse(OPERATOR), HW, "gensor", 30, seed=1)
    assert len(schedules_of(PLAN.operator, HW, "compact", 10**4)) <= 40 * HW.units


@pytest.mark.parametrize("wrong", [{"passes": 0}, {"samples": 2.5}, {"anchor": None}, {"schedules": 0}])
def test_counts_that_are_none_are_named(wrong: dict) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is"):
        Plan(PLAN.operator, HW, "compact", **wrong)


def settings(folder: Path, *more: str) -> record.Settings:
    base = ["operator=gemv(m=8, k=16)", "hardware=cascade_lake", f"output={folder}"]
    return record.settings_of(compose([*base, *more], "record"))


def test_the_command_writes_tables_and_goes_on(tmp_path: Path) -> None:
    worker = MadeUpWorker()
    found = settings(tmp_path)
    assert found.folder == tmp_path / "cascade_lake" and found.store == tmp_path / "trials.sqlite"
    console = Console(record=True)
    (about,) = record.record(found, made_up_backend(worker), console)
    asked = len(worker.asked)
    assert about["complete"] and " 40 " in console.export_text()
    (line,) = (found.folder / "tables.csv").read_text().splitlines()[1:]
    assert line.startswith('"gemv(m=8, k=16)",') and ",yes,compact," in line
    record.record(found, made_up_backend(worker), console)
    assert len(worker.asked) == asked, "nothing is measured twice"
    (found.folder / "gemv_m8_k16.parquet").unlink()
    (again,) = record.record(settings(tmp_path, "measure=false"), None, console)
    assert again == about and (found.folder / "gemv_m8_k16.parquet").exists()
    with pytest.raises(ValueError, match="no device"):
        record.record(settings(tmp_path, "measure=false", "operator=gemv(m=4, k=4)"), None, console)


def test_the_folder_keeps_one_description_of_the_machine(tmp_path: Path) -> None:
    settings(tmp_path, "machine=mine", "hardware=host")
    before = (tmp_path / "mine" / "hardware.json").read_text()
    assert settings(tmp_path, "machine=mine", "hardware=host").plans[0].hardware == hardware.from_json(before)
    (tmp_path / "mine" / "hardware.json").write_text(json.dumps(json.loads(before) | {"lanes": 9}))
    with pytest.raises(ValueError, match="describes another machine .lanes"):
        settings(tmp_path, "machine=mine", "hardware=host")
    for name in ("host", "h200", "Mine", "a/b"):
        with pytest.raises(ValueError, match="expected a name of its own"):
            settings(tmp_path, f"machine={name}", "hardware=host")


def test_every_operator_of_the_configuration_is_small_enough_to_record_completely() -> None:
    plain = compose([], "record")
    ops = operators.resolve(list(plain.operators))
    parts = [operators.part_of(op) for op in ops]
    assert sum(part != "test" for part in parts) >= 8 and plain.passes * plain.samples >= 15
    for op in ops:
        assert 30 <= len(schedules_of(op, HW, "compact")) <= 2000


def test_a_device_that_is_not_here_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be timed here"):
        backend_of(hardware.get("v100"), 5)


MACHINE = hardware.get("cascade_lake")
SOME = [operators.parse(f"gemm(m={m}, n=16, k=40)") for m in range(24, 64)]
OPS = [op for op in SOME if operators.part_of(op) == "train"][:6]


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine without a compiler, eight random programs of six operators, a cache of its own; the kernels that were timed."""
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(collect, "programs", eight)
    monkeypatch.setattr(adapt, "operators_to_learn_from", lambda: [Chosen("train", op) for op in OPS])
    machine = Machine()
    machine.close = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setattr(adapt, "cpu_backend", lambda rules: machine)
    monkeypatch.setattr(measured, "names", lambda _: [])
    return machine.timed


def recorded(path: Path, minutes: float) -> list[dict]:
    with Journal(path, FIELDS) as journal:
        adapt.record(MACHINE, journal, minutes, set(), Console(quiet=True), seed=0)
        return list(journal)


def test_measuring_ends_with_its_minutes_and_goes_on(timed: list[str], tmp_path: Path) -> None:
    rows = recorded(tmp_path / "trials.jsonl", 1e-9)
    assert {row["operator"] for row in rows} == {str(OPS[0])} and len(timed) == len(rows)
    recorded(tmp_path / "trials.jsonl", 1e-9)
    rows = recorded(tmp_path / "trials.jsonl", 1.0)
    assert list(dict.fromkeys(row["operator"] for row in rows)) == [str(op) for op in OPS] and len(timed) == len(rows)


def test_the_strategy_searches_by_what_was_learned(timed: list[str], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gensor adapt"):
        get_strategy("adapted").construct(ConstructionGraph(OPS[0], MACHINE, "extended"), np.random.default_rng(0))  # type: ignore
    correction, card = adapt.learned(recorded(tmp_path / "trials.jsonl", 1.0), MACHINE)
    correction.save(adapted_folder(), card)
    assert json.loads((adapted_folder() / "card.json").read_text())["operators"] == sorted(map(str, OPS))
    graph = ConstructionGraph(OPS[1], MACHINE, "extended")
    found = get_strategy("adapted", walkers=1, refined=1).construct(graph, np.random.default_rng(0))  # type: ignore[attr-defined]
    rows = graph.stack(list(found.schedules))
    assert np.allclose(found.latencies, correction.seconds(graph, rows)) and list(found.latencies) == sorted(found.latencies)


@pytest.mark.thorough
def test_searches_begin_with_what_was_learned_of_this_machine(timed: list[str], tmp_path: Path) -> None:
    here = dataclasses.replace(MACHINE, name="host")
    assert default_for(OPS[0], here) == "markov"
    correction, card = adapt.learned(recorded(tmp_path / "trials.jsonl", 1.0), MACHINE)
    correction.save(adapted_folder(), card)
    (adapted_folder() / "hardware.json").write_text(hardware.to_json(here))
    assert default_for(OPS[0], here) == "in_turn"
    assert default_for(OPS[0], dataclasses.replace(here, units=here.units + 1)) == default_for(OPS[0], MACHINE) == "markov"
    assert default_for(resolve_computation("softmax(m=16, n=40)"), here) == "exhaustive"
    assert default_for(resolve_computation('gemm(m=16, n=16, k=16, dtype="bfloat16")'), here) == "markov_ext"
    plain = Asked.of(OPS[0], "host", walkers=3)
    assert type(plain.search).__name__ == "Markov"
    (adapted_folder() / "card.json").write_text(json.dumps({**card, "fingerprint": "of yesterday"}))
    load_correction.cache_clear()
    with pytest.warns(RuntimeWarning, match="without the model of time of gensor adapt"):
        assert default_for(OPS[0], here) == "markov"
    (adapted_folder() / "hardware.json").unlink()
    with pytest.warns(RuntimeWarning, match=r"hardware\.json"):
        assert default_for(OPS[0], here) == "markov"


def test_without_other_processors_nothing_is_prepared_ahead() -> None:
    done: list[int] = []
    for item, made in prepared(range(3), lambda item: done.append(item) or len(done), set()):
        assert made == item + 1 == len(done)
