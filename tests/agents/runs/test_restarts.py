"""Verdicts hold from process to process: winners are timed in several, and torch's time is held against that of earlier runs."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agents.cli.arguments import compose
from agents.runs.jobs import DONE, Outcome
from agents.runs.settings import settings_of
from experiments.comparison.retime import TORCH, Comparison, Retimer
from experiments.comparison.summary import over_processes, summarise, torch_before
from experiments.comparison.table import notes

WORDS = ["strategy=random_walk", "operator=gemv(m=20, k=12)", "backend=analytic", "hardware=h200", "wandb.mode=disabled"]
OP = "gemv(m=20, k=12)"


def test_rounds_are_shared_out(tmp_path: Path) -> None:
    def shares(rounds: int, processes: int) -> list[int]:
        return Retimer(SimpleNamespace(), SimpleNamespace(), rounds, tmp_path, processes=processes).shares  # type: ignore[arg-type]

    assert shares(31, 3) == [11, 10, 10] and shares(2, 3) == [1, 1] and shares(5, 1) == [5]


def test_every_share_is_timed_in_a_process_begun_anew(tmp_path: Path) -> None:
    said: list[Any] = []

    def time(kernels: dict[str, Any], _hw: object, rounds: int, torch: bool, torch_threads: int | None) -> dict[str, list[float]]:
        said.append(rounds)
        return {name: [float(len(said))] * rounds for name in [*kernels, *([TORCH] if torch else [])]}

    pool = SimpleNamespace(close=lambda: said.append("closed"))
    backend: Any = SimpleNamespace(name="cpu", compare=time, pool=pool, device=lambda _: "this one")
    retimer = Retimer(backend, SimpleNamespace(), 5, tmp_path, processes=3)  # type: ignore[arg-type]
    found = retimer.compare_kernels(OP, {"a": SimpleNamespace(digest="d")}, {})  # type: ignore[arg-type, dict-item]
    assert said == [2, "closed", 2, "closed", 1] and found.processes == [2, 2, 1]
    assert found.samples == {"a": [1.0, 1.0, 3.0, 3.0, 5.0], TORCH: [1.0, 1.0, 3.0, 3.0, 5.0]}
    assert retimer.compare_kernels(OP, {"a": SimpleNamespace(digest="d")}, {}) == found  # type: ignore[arg-type, dict-item]
    assert len(said) == 5, "it was kept"


def summary_of(tmp_path: Path, comparison: Comparison, before: dict[str, Any] | None = None) -> dict[str, Any]:
    settings = settings_of(compose([*WORDS, f"output={tmp_path / 'out'}"]))
    (job,) = settings.jobs
    outcome = Outcome(DONE, trials=1, seconds=1.0)
    return summarise(settings, {job.key: outcome}, {job.key: ["OK"]}, {OP: comparison}, before or {})  # type: ignore[return-value]


def test_a_verdict_that_restarts_do_not_repeat_is_none(tmp_path: Path) -> None:
    """Two processes say faster, the third says slower; within each there is hardly any noise."""
    ours = [1.0, 1.001, 0.999] * 2 + [1.3, 1.301, 1.299]
    torch = [1.1] * 9
    pooled = summary_of(tmp_path, Comparison(OP, {"random_walk": ours[:6], TORCH: torch[:6]}))
    assert pooled["rows"][0]["verdict"] == "FASTER" and "within this run" in notes(pooled, OP)[-1]
    apart = summary_of(tmp_path, Comparison(OP, {"random_walk": ours, TORCH: torch}, processes=[3, 3, 3]))
    row = apart["rows"][0]
    assert row["verdict"] == "AMBIGUOUS" and row["over_torch"]["low"] < 0.85 and row["over_torch"]["high"] > 1.09
    assert row["retimed"] == {"median": 1.0, "low": 0.999, "high": 1.301} and notes(apart, OP) == []
    model = summary_of(tmp_path, Comparison(OP, {"random_walk": [1.0]}, model=True))
    assert notes(model, OP) == [], "nothing was timed"


def test_the_hull() -> None:
    found = over_processes([{"median": m, "low": m - 1, "high": m + 1} for m in (3.0, 5.0, 4.0)])
    assert found == {"median": 4.0, "low": 2.0, "high": 6.0}


def test_torch_is_held_against_an_earlier_run(tmp_path: Path) -> None:
    settings = settings_of(compose([*WORDS, f"output={tmp_path / 'out'}"]))

    def run(seconds: float) -> tuple[Comparison, dict[str, Any]]:
        samples = {TORCH: [seconds, seconds * 1.01] * 3, "random_walk": [1.0] * 6}
        comparison = Comparison(OP, samples, processes=[2, 2, 2])
        return comparison, torch_before(settings, {OP: comparison})

    assert run(4e-3)[1] == {}
    again, before = run(4.01e-3)
    assert before[OP]["median"] == pytest.approx(4.02e-3) and not notes(summary_of(tmp_path, again, before), OP)
    other, before = run(2.88e-3)
    (line,) = notes(summary_of(tmp_path, other, before), OP)
    assert line.startswith("torch took 4.03 ms [") and "and 2.89 ms [" in line and "do not compare times" in line
    assert torch_before(settings, {OP: other}) == before, "the same samples, read again"
    (path,) = (tmp_path / "trials.torch").iterdir()
    assert json.loads(path.read_text())["before"] == before[OP]
