"""Measured v1: which operators and programs, how they are recorded, and episodes of them."""

from __future__ import annotations

import json
import runpy
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from omegaconf import OmegaConf
from rich.console import Console

from agents.cli.command import CONF
from agents.recording import collect, pack
from agents.recording.ahead import prepared
from agents.recording.collect import Collection
from agents.recording.minari_episodes import episode, write
from agents.recording.programs import Program, programs
from agents.runs.journal import Journal
from agents.training.operators.chosen import ADDED, PARTS, UNSEEN, Chosen, added, chosen
from agents.training.operators.layers import Layer, layers
from gensor_gym import ConstructionGraph, hardware, operators
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.backend import get_backend, measure
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records import measured
from gensor_gym.measure.workers.requests import Built
from gensor_gym.operators.shapes.nearness import near

MACHINE = hardware.get("cascade_lake")
FIELDS = ("operator", "digest", "pass")
FEW = [
    Chosen("train", operators.parse("gemm(m=24, n=16, k=40)+bias").freeze()),
    Chosen("test", operators.parse("gemv(m=40, k=24)")),
]


@cache
def listed() -> list[Chosen]:
    return chosen()


@pytest.mark.thorough
def test_parts_have_their_operators_and_are_apart() -> None:
    assert {part: sum(one.part == part for one in listed()) for part in PARTS} == PARTS
    assert len({str(one.operator) for one in listed()}) == len(listed())
    tests = [one.operator for one in listed() if one.part == "test"]
    for one in listed():
        assert (one.operator.name in UNSEEN) == (one.part == "unseen")
        if one.part in ("train", "validation", "test"):
            assert operators.part_of(one.operator, "v2") == one.part
        if one.part in ("train", "validation"):
            assert not any(near(one.operator, other) for other in tests)
    early = {one.part for one in listed()[:200]}
    assert early == set(PARTS) and [str(one.operator) for one in chosen()[:50]] == [str(one.operator) for one in listed()[:50]]


@pytest.mark.thorough
def test_later_parts_are_of_classes_without_recordings_and_apart() -> None:
    found = added()
    assert {part: sum(one.part == part for one in found) for part in ADDED} == ADDED
    assert {one.operator.name for one in found if one.part == "unrecorded"} == set(UNSEEN)
    held_out = [one.operator for one in listed() if one.part == "unseen"]
    for part in ADDED:
        own = [one.operator for one in found if one.part == part]
        assert not any(near(op, other) for op in own for other in held_out) and len(set(map(str, own))) == len(own)
        held_out += own


def test_layers_are_of_thirty_networks_and_grow_with_their_input() -> None:
    assert len({layer.network for layer in layers()}) >= 30
    convolution = Layer("x", "conv2d", {"c": 8, "k": 16, "r": 3, "s": 3, "stride": 2, "padding": 1}, "image", 56)
    assert str(convolution.at(112, 2)) == "conv2d(n=2, c=8, h=28, w=28, k=16, r=3, s=3, stride=2, padding=1)"
    assert str(Layer("x", "gemm", {"n": 8, "k": 4}, "tokens", 128).at(32, 3)) == "gemm(m=96, n=8, k=4)"
    assert str(Layer("x", "gemm", {"n": 8, "k": 4}, "image", 49).at(112, 2)) == "gemm(m=24, n=8, k=4)"
    scores = Layer("x", "batched_gemm", {"b": 12, "n": 0, "k": 64}, "tokens", 128)
    assert str(scores.at(10, 2)) == "batched_gemm(b=24, m=10, n=10, k=64)"
    with pytest.raises(ValueError, match="window"):
        Layer("x", "max_pool2d", {"c": 8, "r": 7, "s": 7}, "image", 14).at(64, 1)


@pytest.mark.thorough
def test_programs_are_different_legal_and_the_same_again() -> None:
    op = FEW[0].operator
    found, again = programs(op, MACHINE, 0), programs(op, MACHINE, 0)
    assert [one.schedule for one in found] == [one.schedule for one in again]
    assert len({one.schedule for one in found}) == len(found)
    graph = ConstructionGraph(op, MACHINE, "extended")
    assert all(graph.is_legal(one.schedule) for one in found)
    assert {"markov_ext", "columns", "near", "random"} <= {one.origin for one in found}
    assert [one.schedule for one in programs(op, MACHINE, 1)] != [one.schedule for one in found]


class Machine:
    """A backend whose kernels take as long as their digest says, twice as long the second time; every ninth is wrong."""

    def __init__(self, stop: int = 10**9) -> None:
        self.timed: list[str] = []
        self.operators: list[str] = []
        self.stop = stop

    def compile(self, kernels: Sequence[Kernel]) -> list[Built]:
        self.operators += {str(kernel.operator) for kernel in kernels}
        return [Built(kernel, "") for kernel in kernels]

    def trial(self, built: Built, _hw: object) -> Measurement:
        if len(self.timed) == self.stop:
            raise KeyboardInterrupt
        digest = built.kernel.digest
        self.timed.append(digest)
        if int(digest, 16) % 9 == 0:
            return Measurement(Status.WRONG_ANSWER, error="wrong", digest=digest)
        seconds = (1 + int(digest, 16) % 1000) * 1e-6 * self.timed.count(digest)
        return Measurement(Status.OK, (seconds, 1.01 * seconds, 0.99 * seconds), {"compile_seconds": 0.1}, digest=digest)


def eight(op: operators.types.Operator, hw: hardware.types.Hardware, seed: int) -> list[Program]:
    graph, rng = ConstructionGraph(op, hw, "extended"), np.random.default_rng(seed)
    return [Program("random", number, graph.random_schedule(rng)) for number in range(8)]


@pytest.fixture(autouse=True)
def random_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings are of programs that no search has to propose."""
    monkeypatch.setattr(collect, "programs", eight)


def recorded(path: Path, machine: Machine) -> list[dict]:
    with Journal(path, FIELDS) as journal:
        for _ in Collection(MACHINE, journal, machine).run(FEW, {0}):  # type: ignore[arg-type]
            pass
        return list(journal)


def test_a_recording_that_was_stopped_goes_on(tmp_path: Path) -> None:
    whole, first, second = Machine(), Machine(6), Machine()
    rows = recorded(tmp_path / "whole.jsonl", whole)
    with pytest.raises(KeyboardInterrupt):
        recorded(tmp_path / "parts.jsonl", first)
    others = recorded(tmp_path / "parts.jsonl", second)
    names = [[row[field] for field in FIELDS] for row in rows]
    assert names == [[row[field] for field in FIELDS] for row in others]
    assert len(first.timed) + len(second.timed) == len(whole.timed) == len(rows) and first.timed + second.timed == whole.timed
    assert [row["pass"] for row in rows].count(1) == len(FEW)


def test_operators_that_are_done_are_not_compiled_again(tmp_path: Path) -> None:
    names = [str(one.operator) for one in FEW]
    of_the_first = len([row for row in recorded(tmp_path / "whole.jsonl", Machine()) if row["operator"] == names[0]])
    with pytest.raises(KeyboardInterrupt):
        recorded(tmp_path / "parts.jsonl", Machine(of_the_first))
    again = Machine()
    recorded(tmp_path / "parts.jsonl", again)
    assert again.operators == names[1:]
    recorded(tmp_path / "parts.jsonl", again)
    assert again.operators == names[1:]


def test_the_table_and_the_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hardware.json").write_text(hardware.to_json(MACHINE))
    table = pack.write(recorded(tmp_path / "trials.jsonl", Machine()), tmp_path, "made_up")
    monkeypatch.setattr(measured, "FOLDER", tmp_path)
    assert measured.names() == ["made_up"] and measured.here("made_up").name == "host"
    read = measured.load("made_up")
    assert list(read.columns) == list(table.columns) and len(read) == len(table)
    assert list(measured.load("made_up", "test").operator.unique()) == [str(FEW[1].operator)]
    again = read.again.notna()
    assert again.sum() == len(FEW) and np.allclose(read.again[again], 2 * read.quiet[again], rtol=1e-2)
    assert (np.isinf(read.seconds) == (read.status != "OK")).all() and set(read.status) == {"OK", "WRONG_ANSWER"}
    card = (tmp_path / "made_up.md").read_text()
    assert pack.minutes([{"at": at} for at in (0.0, 1030.0, 30.0, 1000.0)]) == 1.0  # of a pause of 970 s nothing
    assert f"{len(read)} programs of 2 operators" in card and "by 100.0% in the median" in card and "| test | gemv | 1 |" in card
    with pytest.raises(ValueError, match="machine of Measured v1 'zen9'.*made_up"):
        measured.load("zen9")
    with pytest.raises(ValueError, match="part 'tset'"):
        measured.load("made_up", "tset")


def test_one_is_prepared_ahead() -> None:
    made: list[int] = []

    def prepare(item: int) -> int:
        made.append(item)
        return item * item

    seen = [(item, value, len(made)) for item, value in prepared(range(5), prepare, {0})]
    assert [pair[:2] for pair in seen] == [(n, n * n) for n in range(5)] and made == list(range(5))
    with pytest.raises(ZeroDivisionError):
        list(prepared([1, 0], lambda item: 1 // item, {0}))


MACHINE_MINARI = "zen4_1c"
EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
NAME = "gensor_gym/zen4_1c-validation-sizes-v1"


@pytest.fixture(scope="module")
def rows() -> Any:
    """Rows of three operators."""
    table = measured.load(MACHINE_MINARI, "validation")
    return table[table.operator.isin(sorted(map(str, table.operator.unique()))[:3])]


def made(folder: Path, operators: int) -> None:
    """The data set of a number of operators of the part `validation`, by the command's function."""
    config = OmegaConf.load(CONF / "minari.yaml")
    config.update(part="validation", operators=operators, output=str(folder))
    write(config, Console(quiet=True))  # type: ignore[arg-type]


def written(rows: Any, choices: str, backend: str = "measured") -> Any:
    operators = sorted(map(str, rows.operator.unique()))
    settings = {"operator": operators, "hardware": MACHINE_MINARI, "backend": backend, "space": "extended", "choices": choices}
    return gymnasium.make("gensor_gym/Write-v0", **settings)


@pytest.mark.parametrize("choices", ["sizes", "columns"])
def test_an_episode_writes_the_program_and_is_paid_by_its_time(rows: Any, choices: str) -> None:
    env, modelled = written(rows, choices), written(rows, choices, "analytic")
    for row in rows.itertuples():
        found = episode(env, str(row.operator), str(row.schedule))
        steps = len(found["actions"])
        assert len(found["observations"]) == len(found["infos"]["action_mask"]) == steps + 1 == len(found["rewards"]) + 1
        assert all(mask[action] for mask, action in zip(found["infos"]["action_mask"], found["actions"], strict=False))
        assert found["terminations"] == [False] * (steps - 1) + [True] and not any(found["rewards"][:-1])
        told = episode(modelled, str(row.operator), str(row.schedule))
        ratio = np.exp(told["rewards"][-1] - found["rewards"][-1]) if min(told["rewards"][-1], found["rewards"][-1]) else None
        seconds = measure(str(row.operator), _schedule(row), MACHINE_MINARI, "analytic").seconds
        assert row.status != Status.OK.value or ratio is None or ratio == pytest.approx(row.quiet / seconds)


def _schedule(row: Any) -> Schedule:
    return Schedule.parse(str(row.schedule))


def test_what_is_not_recorded_is_named(rows: Any) -> None:
    env = written(rows, "sizes")
    _, info = env.reset(seed=0)
    done = False
    while not done:
        _, reward, done, _, info = env.step(int(np.flatnonzero(info["action_mask"])[0]))
    assert (info["status"], reward) == ("NOT_RECORDED", 0.0)
    with pytest.raises(ValueError, match="h100.*zen4_1c"):
        measure(str(rows.operator.iloc[0]), _schedule(next(rows.itertuples())), "h100", "measured")
    assert get_backend("measured", hardware.get(MACHINE_MINARI)).device(hardware.get(MACHINE_MINARI)) == MACHINE_MINARI
    again = EnvSpec.from_json(env.spec.to_json())
    assert again.kwargs["hardware"] == MACHINE_MINARI and gymnasium.make(again).unwrapped.tasks.hardware.name == MACHINE_MINARI


def test_a_data_set_is_what_its_environment_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari", reason="extra minari")
    made(tmp_path, 3)
    with pytest.raises(ValueError, match=r"is in .*: expected dataset=ANOTHER, or minari.delete_dataset\("):
        made(tmp_path, 3)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset = minari.load_dataset(NAME)
    env, told = dataset.recover_environment(), list(dataset.storage.get_episode_metadata(range(3)))
    for number, options in enumerate(json.loads(json.dumps(one["options"])) for one in told):
        own = dataset[number]
        observation, info = env.reset(options={"operator": options["operator"]})
        for step, action in enumerate(own.actions):
            assert np.array_equal(observation, own.observations[step])
            assert np.array_equal(info["action_mask"], own.infos["action_mask"][step])
            observation, reward, ended, _, info = env.step(action)
            assert reward == own.rewards[step] and ended == own.terminations[step]
        assert ended
    assert dataset.recover_environment(eval_env=True).spec.kwargs["backend"] == "cpu"
    low, high = (dataset.storage.metadata[name] for name in ("ref_min_score", "ref_max_score"))
    assert 0 < low < high and minari.get_normalized_score(dataset, np.array(high)) == pytest.approx(1.0)


@pytest.mark.examples
def test_scripts_learn_from_a_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minari", reason="extra minari")
    made(tmp_path, 6)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    _, losses = runpy.run_path(str(EXAMPLES / "minari_cloning.py"))["clone"](NAME, epochs=150)
    assert losses[-1] < 0.85 * losses[0]
    learn = runpy.run_path(str(EXAMPLES / "minari_offline.py"))["learn"]
    assert learn(NAME, epochs=12)[1] < 0.2 * learn(NAME, epochs=1)[1]
    assert all(len((EXAMPLES / f"minari_{name}.py").read_text().splitlines()) <= 40 for name in ("cloning", "offline"))
