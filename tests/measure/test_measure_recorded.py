"""Recorded tables answer like the machine; those that ship."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import gensor_gym
from agents import optimize
from gensor_gym import ConstructionGraph, hardware, operators
from gensor_gym.env.construct import ConstructEnv
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware import described
from gensor_gym.hardware.described import FILE as FILE_shipped
from gensor_gym.hardware.described import RECORDINGS, differences
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.records import backend as recorded
from gensor_gym.measure.records.backend import RecordedBackend, open_recorded
from gensor_gym.measure.records.store import Store
from gensor_gym.measure.records.tables import file_name, read_table, write_table
from gensor_gym.measure.session import Budget, BudgetSpent, Session, Task
from gensor_gym.measure.stats.timing import PROTOCOL
from tests.support.recordings import FOLDER, OPERATOR, episodes
from tests.support.thorough import thorough_but

ID = "gensor_gym/Construct-v0"
OP = operators.parse(OPERATOR)
FILE = FOLDER / f"{file_name(OP)}.parquet"
HW = hardware.from_json((FOLDER / "hardware.json").read_text(encoding="utf-8"))
GRAPH = ConstructionGraph(OP, HW, "compact")


@cache
def schedules() -> list[Schedule]:
    """All of the table's, which are listed by a function that Numba compiles: not before a test asks."""
    return [Schedule(row) for batch in GRAPH.enumerate() for row in batch]


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The golden table as if it came with the package, from a machine called `zebra`."""
    folder = tmp_path / "recordings" / "zebra"
    folder.mkdir(parents=True)
    (folder / "hardware.json").write_text(hardware.to_json(dataclasses.replace(HW, name="zebra")))
    table = read_table(FILE)
    about = {**table.about, "hardware": hardware.to_json(dataclasses.replace(HW, name="zebra"))}
    write_table(folder / FILE.name, table.records, about)
    for module in (described, recorded):
        monkeypatch.setattr(module, "RECORDINGS", folder.parent)
    return folder


def test_a_recorded_space_is_closed_under_its_actions() -> None:
    backend, seen, ahead = RecordedBackend(FILE), set(), [GRAPH.initial()]
    while ahead:
        schedule = ahead.pop()
        if schedule not in seen:
            seen.add(schedule)
            ahead += GRAPH.successors(schedule).values()
    assert len(seen) > len(schedules())  # levels not opened yet are states too
    statuses = {m.status for m in backend.measure(OP, list(seen), HW)}
    assert statuses == {Status.OK, Status.WRONG_ANSWER}


def test_replay_gives_what_was_recorded() -> None:
    table, backend = read_table(FILE), RecordedBackend(FILE)
    assert len(backend) == len(schedules()) == len(table.records)
    for record in table.records:
        schedule = Schedule.parse(record.schedule)
        (found,) = backend.measure(OP, [schedule], HW)
        assert found == record.measurement and backend.digest(OP, schedule, HW) == found.digest
    other = ConstructionGraph(OP, HW, "gensor").random_schedule(np.random.default_rng(1))
    assert backend.measure(OP, [other], HW)[0].status is Status.NOT_RECORDED
    assert backend.measure(operators.parse("gemv(m=4, k=4)"), schedules()[:1], HW)[0].status is Status.NOT_RECORDED


def test_noise_depends_on_seed_program_and_number_of_asking_alone() -> None:
    one, two = (RecordedBackend(FILE, resample=4, seed=1) for _ in range(2))
    exact = RecordedBackend(FILE).measure(OP, schedules(), HW)
    good = list({m.digest: s for s, m in zip(schedules(), exact, strict=True) if m.status is Status.OK}.values())[:20]
    first = [one.measure(OP, [s], HW)[0].samples for s in good]
    second = one.measure(OP, good, HW)
    assert [m.samples for m in two.measure(OP, good[::-1], HW)][::-1] == first
    assert [m.samples for m in two.measure(OP, good, HW)] == [m.samples for m in second]
    assert first != [m.samples for m in second]
    assert first != [m.samples for m in RecordedBackend(FILE, resample=4, seed=2).measure(OP, good, HW)]
    recorded_samples = [set(m.samples) for m in RecordedBackend(FILE).measure(OP, good, HW)]
    assert all(len(s) == 4 and set(s) <= known for s, known in zip(first, recorded_samples, strict=True))
    one.restart()
    assert [m.samples for m in one.measure(OP, good, HW)] == first
    moved = pickle.loads(pickle.dumps(two))
    assert moved.measure(OP, good, HW) == two.measure(OP, good, HW)


def test_regret_is_known_where_the_table_is_complete(tmp_path: Path) -> None:
    backend = RecordedBackend(FILE)
    found = backend.measure(OP, schedules(), HW)
    regrets = np.array([backend.regret(GRAPH, s) for s in schedules()], dtype=float)
    seconds = np.array([m.seconds for m in found])
    best = seconds.min()
    tied = read_table(FILE).about["optimum"]["tied"]
    assert (regrets == 0.0).sum() == tied >= 1 and regrets[seconds.argmin()] == 0.0
    apart = (regrets > 0.0) & np.isfinite(regrets)
    assert np.allclose(regrets[apart], np.log(seconds[apart] / best))
    assert np.isinf(regrets[~np.isfinite(seconds)]).all() and not np.isfinite(seconds).all()
    records = read_table(FILE).records
    short = RecordedBackend(records[1:])
    assert short.regret(GRAPH, schedules()[5]) is None
    assert backend.regret(ConstructionGraph(OP, HW, "gensor"), schedules()[0]) is None
    noisy = RecordedBackend(FILE, resample=1)
    assert [noisy.regret(GRAPH, s) for s in schedules()] == regrets.tolist(), "regret is no noisier than the table"


def test_a_space_beyond_the_table_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first schedule that was not recorded says that nobody knows the best: there may be millions."""
    graph, begun = ConstructionGraph(OP, HW, "gensor"), []

    def batches(self: ConstructionGraph) -> Iterator[np.ndarray]:
        for _ in range(1000):
            begun.append(1)
            yield graph.stack([graph.random_schedule(np.random.default_rng(len(begun))) for _ in range(4)])

    monkeypatch.setattr(ConstructionGraph, "enumerate", batches)
    assert RecordedBackend(FILE).regret(graph, schedules()[0]) is None and len(begun) < 10


def test_other_machines_are_refused() -> None:
    with pytest.raises(ValueError, match="recorded on cascade_lake, whose figures are not those of 'h200'"):
        RecordedBackend(FILE).measure(OP, schedules()[:1], hardware.get("h200"))
    for change in ({"lanes": 8}, {"memory": HW.memory[:1]}, {"name": "a machine with another clock", "clock": 1.0}):
        with pytest.raises(ValueError, match="take the hardware that the table describes"):
            RecordedBackend(FILE).measure(OP, schedules()[:1], dataclasses.replace(HW, **change))
    renamed = dataclasses.replace(HW, name="another name of the same machine")
    assert RecordedBackend(FILE).measure(OP, schedules()[:1], renamed)[0].status is not Status.NOT_RECORDED


def test_the_models_rates_may_change_under_a_table() -> None:
    """A machine whose model is calibrated anew keeps its tables: which schedules there are does not depend on rates."""
    faster = tuple(dataclasses.replace(level, bandwidth=2 * level.bandwidth, latency=0.0) for level in HW.memory)
    peak = tuple((dtype, 2 * rate) for dtype, rate in HW.peak)
    other = dataclasses.replace(HW, clock=1.0, peak=peak, launch_overhead=1.0, memory=faster)
    backend, graph = RecordedBackend(FILE), ConstructionGraph(OP, other, "compact")
    assert graph.latency(schedules()[0]) != GRAPH.latency(schedules()[0])
    assert backend.measure(OP, schedules(), other) == backend.measure(OP, schedules(), HW)
    assert backend.regret(graph, schedules()[0]) == backend.regret(GRAPH, schedules()[0])


def test_shipped_tables_are_found_by_the_machine(shipped: Path) -> None:
    env = gymnasium.make(ID, operator=OPERATOR, hardware="zebra", space="compact", backend="recorded")
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    for one in (env, again):
        one.reset(seed=0)
        _, _, ended, _, info = one.step(0)
        assert ended and info["status"] == "OK" and info["regret"] > 0
    assert hardware.recorded_names() == ("zebra",)
    for text in ("recorded:zebra", f"recorded:zebra/{FILE.stem}", f"recorded:{FILE}", f"recorded:{FOLDER}"):
        found = get_backend(text, hardware.get("zebra")).measure(OP, schedules()[:1], hardware.get("zebra"))
        assert found[0].status is not Status.NOT_RECORDED
    as_object = gymnasium.make(ID, operator=OPERATOR, hardware=hardware.get("zebra"), space="compact", backend="recorded")
    assert json.loads(as_object.spec.to_json())["kwargs"]["hardware"] == "zebra"


def test_what_is_not_recorded_is_said_before_it_is_asked_for(shipped: Path) -> None:
    def said(operator: str, space: str) -> str:
        with pytest.warns(RuntimeWarning) as heard:
            gymnasium.make(ID, operator=operator, hardware="zebra", space=space, backend="recorded")
            Session(Task.of(operator, "zebra", "recorded", space), Budget(trials=1))
        first, second = map(str, (one.message for one in heard))
        assert first == second
        return first

    other = "gemm(m=8, n=8, k=8)"
    assert f"no table has timings of {other}: expected one of {FILE.stem}" in said(other, "compact")
    assert "has programs that the table of" in (text := said(OPERATOR, "gensor")) and "expected space='compact'" in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gymnasium.make(ID, operator=OPERATOR, hardware="zebra", space="compact", backend="recorded")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("recorded", "no table of h200 is shipped .there are tables of: zebra."),
        ("recorded:nowhere", "no recorded table at nowhere, nor among those shipped .machines: zebra."),
        ("recorded:zebra?resample=0", "resample=0: expected 1 or more"),
        ("recorded:zebra?resample=x", "expected recorded:WHAT.resample=COUNT"),
        ("recorded:zebra?samples=3", "no other options than resample and seed"),
        ("recordedly", "no backend 'recordedly'; accepted: auto"),
    ],
)
def test_texts_that_name_no_table(shipped: Path, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        get_backend(text, hardware.get("h200"))


def test_folders_without_tables_and_bad_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no recorded table"):
        RecordedBackend(tmp_path)
    (tmp_path / "x.jsonl.gz").write_text("{}")
    with pytest.raises(ValueError, match="x.jsonl.gz, line 1: not a record"):
        RecordedBackend(tmp_path / "x.jsonl.gz")
    (tmp_path / "x.csv").write_text("a,b")
    with pytest.raises(ValueError, match="timings are read from .jsonl, .parquet"):
        RecordedBackend(tmp_path / "x.csv")
    records = read_table(FILE).records
    with pytest.raises(ValueError, match="mixes timing protocols"):
        RecordedBackend([records[0], dataclasses.replace(records[1], protocol=1)])


def test_without_pyarrow_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    recorded._read.cache_clear()
    with pytest.raises(ImportError, match=r"pip install 'gensor_gym\[lab\]'"):
        RecordedBackend(FILE)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_environments_with_noise_can_be_seeded_and_copied(copied) -> None:
    from gymnasium.utils.env_checker import check_env

    text = f"recorded:{FILE}?resample=1&seed=3"
    env = ConstructEnv(OPERATOR, HW, text, "compact", timing="fresh")
    check_env(env, skip_render_check=True)

    def stops(one: ConstructEnv, times: int) -> list[float]:
        found = []
        for _ in range(times):
            one.reset()
            found.append(one.step(0)[1])
        return found

    env.reset(seed=0)
    first = stops(env, 6)
    assert len(set(first)) > 1, "the noise is replayed"
    env.reset(seed=0)
    assert stops(env, 3) == first[:3]
    other = copied(env)
    assert stops(other, 3) == first[3:] == stops(env, 3)
    assert stops(ConstructEnv(OPERATOR, HW, text, "compact"), 3) == first[:1] * 3, "a pooled time stays what it was"


def test_vector_environments_say_the_regret_too() -> None:
    envs = gymnasium.make_vec(
        ID, num_envs=3, operator=OPERATOR, hardware=HW, space="compact", backend=f"recorded:{FILE}",
        autoreset_mode="Disabled",
    )  # fmt: skip
    envs.reset(seed=0)
    envs.step(np.array([1, 1, 1]))
    _, _, ended, _, info = envs.step(np.array([0, 1, 0]))
    assert ended.tolist() == [True, False, True] == info["_regret"].tolist()
    known = [RecordedBackend(FILE).regret(GRAPH, s) for s in envs.unwrapped.schedules]
    assert info["regret"][[0, 2]].tolist() == [known[0], known[2]] and np.isnan(info["regret"][1])


def test_budgets_are_charged_what_the_trials_took() -> None:
    good = [m for m in RecordedBackend(FILE).measure(OP, schedules(), HW) if m.status is Status.OK]
    seconds = float(np.median([m.conditions["trial_seconds"] for m in good]))  # type: ignore[arg-type]
    session = Session(Task(OP, HW, RecordedBackend(FILE), "compact"), Budget(seconds=20 * seconds))
    with pytest.raises(BudgetSpent):
        for schedule in schedules():
            session.measure([schedule])
    assert 15 <= session.trials <= 25 and session.elapsed >= 20 * seconds


def test_a_strategy_finds_the_recorded_optimum() -> None:
    result = optimize(OP, HW, "exhaustive", trials=len(schedules()), backend=f"recorded:{FILE}")
    assert RecordedBackend(FILE).regret(GRAPH, result.schedule) == 0.0


GOLDEN = FOLDER / "episodes.json"


def test_episodes_are_those_recorded(update_golden: bool) -> None:
    """Bit by bit, in this version of Python; `python -m tests.support.recordings` prints them anywhere else."""
    found = episodes()
    if update_golden:
        GOLDEN.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        pytest.skip("recorded")
    expected = json.loads(GOLDEN.read_text(encoding="utf-8"))
    for one, other in zip(found, expected, strict=True):
        assert {k: v for k, v in one.items() if k != "observations"} == {k: v for k, v in other.items() if k != "observations"}


def _episodes_of(python: str) -> list[dict]:
    """Episodes of another process."""
    run = subprocess.run(
        [python, "-m", "tests.support.recordings"], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout)


@pytest.mark.thorough
def test_another_process_plays_the_very_same_episodes() -> None:
    assert _episodes_of(sys.executable) == episodes()


@pytest.mark.skipif("OTHER_PYTHON" not in os.environ, reason="OTHER_PYTHON names no interpreter with the gym installed")
def test_another_version_of_python_plays_the_very_same_episodes() -> None:
    assert _episodes_of(os.environ["OTHER_PYTHON"]) == episodes()


def test_a_store_is_a_table_as_well(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    store.add({r.measurement.digest: dataclasses.replace(r, protocol=PROTOCOL) for r in read_table(FILE).records}.values())
    assert len(RecordedBackend(store)) == len(RecordedBackend(store.path)) == len(store)


FILES = sorted(RECORDINGS.glob("*/*.parquet"))
LEAST_TABLES = 8
LEAST = {"zen5_1c": (15, 3), "h100": (5, 1)}
"""Samples and passes of every kernel that ran."""


@pytest.mark.thorough
def test_there_are_enough_of_them() -> None:
    assert hardware.recorded_names() and len(FILES) >= LEAST_TABLES
    assert len({operators.parse(read_table(path).about["operator"]).name for path in FILES}) >= LEAST_TABLES


@pytest.mark.parametrize("path", thorough_but(FILES, *FILES[::5]), ids=lambda path: path.stem)
def test_every_schedule_of_the_space_is_there(path: Path) -> None:
    table = read_table(path)
    op, hw = operators.parse(table.about["operator"]), hardware.get(path.parent.name)
    assert path.stem == file_name(op) and table.about["part"] == operators.part_of(op)
    assert not differences(hardware.from_json(table.about["hardware"]), hw)
    assert hardware.from_json(table.about["hardware"]) == hardware.from_json((path.parent / FILE_shipped).read_text())
    graph = ConstructionGraph(op, hw, table.about["space"])
    wanted = {str(Schedule(row)) for rows in graph.enumerate() for row in rows}
    assert {record.schedule for record in table.records} == wanted
    good = [record.measurement for record in table.records if record.measurement.status is Status.OK]
    assert len(good) >= (1.0 if hw.kind == "cpu" else 0.85) * len(wanted), "what spills registers is not timed on a GPU"
    samples, passes = LEAST[path.parent.name]
    assert min(len(m.samples) for m in good) >= samples
    assert passes <= min(len(set(m.conditions["passes"])) for m in good) <= table.about["passes"]
    assert all(m.seconds > graph.floor * 0.5 for m in good)
    card = path.with_suffix(".md").read_text(encoding="utf-8")
    assert str(op) in card and "licence" in card.lower()
    backend = open_recorded("recorded", hw)
    regrets = [backend.regret(graph, Schedule.parse(record.schedule)) for record in table.records]
    assert None not in regrets and table.about["optimum"]["tied"] == sum(r == 0.0 for r in regrets) < len(regrets) / 2
    assert sum(math.isinf(r) for r in regrets if r is not None) == len(wanted) - len(good)


@pytest.mark.parametrize("file", FILES[:: len(FILES) - 1], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_by_name_alone(file: Path) -> None:
    op = operators.parse(read_table(file).about["operator"])
    machine = file.parent.name
    env = gymnasium.make("gensor_gym/Construct-v0", operator=op, hardware=machine, space="compact", backend="recorded")
    _, info = env.reset(seed=0)
    rng, ended = np.random.default_rng(0), False
    while not ended:
        _, _, ended, _, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
    assert info["status"] == "OK" and info["regret"] >= 0.0
    best = optimize(op, machine, "exhaustive", trials=2000, backend="recorded", space="compact")
    assert open_recorded("recorded", hardware.get(machine)).regret(best.task.graph(), best.schedule) == 0.0
    assert gensor_gym.load_space(file).seconds("median").min() == best.seconds
