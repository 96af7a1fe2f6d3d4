"""Fine-tuning of policies that write columns: what was measured counts, elsewhere a prediction; it moves towards what is fast."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch  # noqa: E402
from omegaconf import DictConfig  # noqa: E402
from rich.console import Console  # noqa: E402

from agents.cli.arguments import compose  # noqa: E402
from agents.columns.choices import Choices  # noqa: E402
from agents.columns.given import Given  # noqa: E402
from agents.columns.policy import load_columns  # noqa: E402
from agents.core.feedback import Feedback  # noqa: E402
from agents.runs.journal import locked  # noqa: E402
from agents.training.fine_tuning import columns as fine_tune_columns  # noqa: E402
from agents.training.fine_tuning import fine_tune
from agents.training.fine_tuning.columns import Judge, MeasuredLearner  # noqa: E402
from agents.training.fine_tuning.measured_reward import Timings  # noqa: E402
from gensor_gym.construction import ConstructionGraph  # noqa: E402
from gensor_gym.graph.schedule import Schedule  # noqa: E402
from gensor_gym.graph.tables.layout import LEVEL, MAX_AXES, TILE  # noqa: E402
from gensor_gym.graph.tables.tables import NUM_LEVELS  # noqa: E402
from gensor_gym.hardware.types import Hardware  # noqa: E402
from gensor_gym.measure.measurement import Measurement, Status  # noqa: E402
from gensor_gym.operators.types import Operator  # noqa: E402
from tests.support.env_backends import MadeUpBackend  # noqa: E402
from tests.support.policies_made import make_columns  # noqa: E402

GEMM = "gemm(m=256, n=128, k=128)"
SMALL = ["columns.tasks=2", "columns.programs=32", "columns.kernels=3", "columns.warm_kernels=1", "columns.updates=2"]


class Contrary(MadeUpBackend):
    """The model's times, but a register tile of more than 16 elements takes four times as long."""

    def stream(self, op: Operator, schedules: Sequence[Schedule], hw: Hardware) -> Iterator[Measurement]:
        graph = ConstructionGraph(op, hw, "gensor")
        for schedule in schedules:
            self.measured.append(self.digest(op, schedule, hw))
            yield Measurement(Status.OK, (graph.latency(schedule) * (4.0 if is_large(schedule.row) else 1.0),) * 3)


def is_large(row: np.ndarray) -> bool:
    return int(np.prod(row[TILE : TILE + MAX_AXES])) > 16


def share_of_large(folder: Path) -> float:
    """Among legal draws of a policy."""
    choices = Choices(ConstructionGraph(GEMM, "h200", "gensor"))
    load_columns.cache_clear()
    draws = np.random.default_rng(1).random((2000, len(choices.counts)))
    with torch.no_grad():
        rows = choices.rows(load_columns(str(folder))(choices, draws)[0])
    return float(np.mean([is_large(row) for row in rows[choices.graph.fits(rows)]]))


def configuration(folder: Path, *more: str) -> DictConfig:
    return compose(
        [
            f"checkpoint={folder / 'p0'}", f"output={folder / 'tuned'}", "env.hardware=h200", f"operators=['{GEMM}']",
            f"store={folder / 's.sqlite'}", *SMALL, *more,
        ],
        name="fine_tune",
    )  # fmt: skip


def tuned(folder: Path, *more: str) -> dict[str, Any]:
    return fine_tune.fine_tune(configuration(folder, *more), Console(quiet=True))


@pytest.fixture(autouse=True)
def measured_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels take what is made up."""
    monkeypatch.setattr(fine_tune, "get_backend", lambda name, hw: MadeUpBackend())


def rows_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "tuned" / "measured.jsonl").read_text().splitlines()]


def weights(folder: Path) -> torch.Tensor:
    load_columns.cache_clear()
    return torch.cat([p.detach().flatten() for p in load_columns(str(folder)).parameters()])


def test_what_was_measured_counts_and_elsewhere_a_prediction(tmp_path: Path) -> None:
    backend, graph = MadeUpBackend(), ConstructionGraph(GEMM, "h200", "gensor")
    timings, rng = Timings(tmp_path / "m.jsonl", backend, None), np.random.default_rng(0)
    rows = np.array([graph.random_schedule(rng).row for _ in range(60)])
    rows[:, LEVEL] = graph.tables.ints[NUM_LEVELS] - 1
    judge = Judge(Choices(graph))
    np.testing.assert_array_equal(judge.seconds(rows), graph.latencies(rows))
    fine_tune_columns.measure(judge, rows, 20, timings)
    assert timings.spent == 20 and len(judge.known) == 20
    found, feedback = judge.seconds(rows), Feedback()
    for line in timings.rows:
        schedule = Schedule.parse(line["schedule"])
        feedback.add(schedule, graph.latency(schedule), math.inf if line["seconds"] is None else line["seconds"])
    assert any(line["seconds"] is None for line in timings.rows), "one that failed is among them"
    for row, seconds in zip(rows, found, strict=True):
        schedule = Schedule(row)
        expected = backend.expected(backend.digest(graph.operator, schedule, graph.hardware))
        if judge.known.get(schedule) is not None:
            assert seconds == (math.inf if expected is None else expected)
        else:
            assert seconds == pytest.approx(feedback.corrected(schedule, graph.latency(schedule)))
    ran = sorted(line["seconds"] for line in timings.rows if line["seconds"] is not None)
    fastest = [judge.known[Schedule(row)] for row in judge.choices.rows(judge.fastest(7))]
    assert fastest == ran[:7] and judge.fastest(100).shape == (len(ran), len(judge.choices.counts))
    again = Judge(Choices(graph), Timings(tmp_path / "m.jsonl", backend, None).rows)
    assert again.known == judge.known and len(backend.measured) == 20
    np.testing.assert_allclose(again.seconds(rows), found)
    fine_tune_columns.measure(judge, rows, 60, timings)
    assert len(backend.measured) == len(set(backend.measured)), "no kernel twice"


@pytest.mark.thorough
def test_it_moves_towards_what_is_measured_to_be_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fine_tune, "get_backend", lambda name, hw: Contrary())
    make_columns(tmp_path / "p0", 0)
    tuned(tmp_path, "columns.learning_rate=0.003", "columns.programs=64", "columns.updates=12", "measurements=60")
    before, after = (share_of_large(tmp_path / name) for name in ("p0", "tuned"))
    assert after < 0.6 * before, (before, after)


@pytest.mark.thorough
def test_it_learns_from_a_fast_kernel_that_it_would_not_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One program alone is fast, and was measured before; with it among the draws its chance rises by more than without."""
    monkeypatch.setattr(MadeUpBackend, "expected", lambda backend, digest: 1.0)
    graph, chances = ConstructionGraph(GEMM, "h200", "gensor"), []
    for remembered in (0, 4):
        config = configuration(tmp_path, f"columns.remembered={remembered}", "columns.learning_rate=0.003")
        settings = {**config.columns, "width": 16}
        learner = MeasuredLearner(settings, [graph], (), 0)
        choices = learner.choices[0]
        draws = np.random.default_rng(3).random((200, len(choices.counts)))
        with torch.no_grad():
            chosen, drawn, _ = learner.network(choices, draws)
        rare = int(np.flatnonzero(graph.fits(choices.rows(chosen)))[0])
        with torch.no_grad():
            again, before, _ = learner.network(choices, np.zeros((1, len(choices.counts))), substitute=Given(chosen[[rare]]))
        assert np.array_equal(again[0], chosen[rare]) and float(before[0]) == pytest.approx(float(drawn[rare]), abs=1e-5)
        learner.judges[choices].known[Schedule(choices.rows(chosen[[rare]])[0])] = 1e-9
        for _ in range(40):
            learner.advance()
        with torch.no_grad():
            after = learner.network(choices, np.zeros((1, len(choices.counts))), substitute=Given(chosen[[rare]]))[1]
        chances.append(float(after[0] - before[0]))
    assert chances[1] > chances[0] + 1.0 and chances[1] > 0.0, chances


BAD = ("kernels=0", "updates=0", "best=2", "tasks=0", "warm_kernels=4", "remembered=17", "temperature=0")


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_setting_is_named(tmp_path: Path, bad: str) -> None:
    make_columns(tmp_path / "p0", 0)
    with pytest.raises(ValueError, match=bad.split("=")[0]):
        tuned(tmp_path, f"columns.{bad}")


@pytest.mark.thorough
def test_a_folder_of_something_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another seed, policy or machine would mix two runs; more measurements go on with it, and two processes keep apart."""
    make_columns(tmp_path / "p0", 0)
    with pytest.raises(ValueError, match="columns.kernels is 0"):
        tuned(tmp_path, "columns.kernels=0")
    tuned(tmp_path, "measurements=3")  # nothing was measured: no other run
    before = rows_of(tmp_path)
    with pytest.raises(ValueError, match="seed 0, now 1.*expected the same"):
        tuned(tmp_path, "measurements=6", "seed=1")
    with monkeypatch.context() as patch:
        patch.setattr(MadeUpBackend, "device", lambda backend, hw: "another machine")
        with pytest.raises(ValueError, match="device .*, now 'another machine'"):
            tuned(tmp_path, "measurements=6")
    with locked(tmp_path / "tuned"), pytest.raises(ValueError, match="another process"):
        tuned(tmp_path, "measurements=6")
    assert rows_of(tmp_path) == before
    card = tuned(tmp_path, "measurements=6")
    assert rows_of(tmp_path)[: len(before)] == before and card["fine_tuned"]["measurements"] >= 6
    shutil.rmtree(tmp_path / "p0")
    make_columns(tmp_path / "p0", 1)
    with pytest.raises(ValueError, match="policy"):
        tuned(tmp_path, "measurements=9")
