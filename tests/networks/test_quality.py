"""Qualities of a compiled network: what is chosen by the model is verified once; what is known is taken up, not repeated."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import gensor_gym
from agents.gensor.markov import Markov
from agents.optimizer import NoKernel
from agents.pieces import Others, Piece, promising
from agents.progress import shown
from agents.quality import LOSSES, QUALITIES, Effort
from agents.rounds import Rounds
from gensor_gym import hardware
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.measure.measurement import UNTIMED, Measurement, Status
from gensor_gym.measure.native import NativeBackend
from gensor_gym.measure.workers.requests import Built

X = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 16), nn.Softmax(-1)).eval()


def compiled(module: nn.Module, store: Path, **options: Any) -> Any:
    found = gensor_gym.compile(module, (X,), store=store / "store.sqlite", **options)
    with torch.no_grad():
        torch.testing.assert_close(found(X), module(X), rtol=1e-4, atol=1e-5)
    return found


def test_more_effort_goes_on_from_less(module: nn.Module, tmp_path: Path) -> None:
    """What was verified only counts as known for the same effort, and is timed for a greater one."""
    def traces(**options: Any) -> list[tuple[int, bool]]:
        found = compiled(module, tmp_path, **options)
        return [(len(result.trace), bool(result.measurement.conditions.get(UNTIMED))) for result in found.results]

    assert traces(quality="fast") == [(1, True)] * 2
    assert traces(quality="fast") == [(0, True)] * 2
    assert traces(quality="balanced") == [(QUALITIES["balanced"], False)] * 2
    assert traces(quality="fast") == traces(trials=2) == [(0, False)] * 2


def test_pieces_without_promise_are_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second product takes nearly all the time. No piece is searched again, until all get more trials."""
    monkeypatch.setattr("agents.pieces.warm_floor", lambda *_: 0.0)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(16, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 16)).eval()

    def traces(**options: Any) -> list[int]:
        return [len(result.trace) for result in compiled(module, tmp_path, **options).results]

    every, cheapest = QUALITIES["balanced"], 1
    found = traces()
    assert max(found) == every and min(found) == cheapest
    assert traces() == [0] * len(found)
    assert sorted(traces(trials=every)) == sorted(every if one == cheapest else 0 for one in found)


def fake_piece(seconds: float | None, count: int = 1, once: float | None = None) -> Piece:
    """A piece whose best program took so long, or had taken it in an earlier search. Its floor is 1 s."""
    best = None if seconds is None else (None, Measurement(Status.OK, (seconds,)))
    asked = SimpleNamespace(task=SimpleNamespace(operator=None, hardware=None))
    session = SimpleNamespace(best=best, trials=int(seconds is not None))
    return Piece(asked, count, 0, session, None, None if once is None else SimpleNamespace(seconds=once))  # type: ignore[arg-type]


def test_what_could_become_fast_is_searched_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 s, 5 s may be lost: the pieces with excesses of 1, 1 and 2 s, and not also that of 3 s. A failure is promising."""
    monkeypatch.setattr("agents.pieces.warm_floor", lambda *_: 1.0)
    some = [fake_piece(2.0), fake_piece(4.0), fake_piece(2.0, count=2), fake_piece(None, once=2.0), fake_piece(86.0)]
    assert promising(some, Others(2.0, 0.05)) == [some[4], some[1]]
    assert promising([*some, failed := fake_piece(None)], Others(2.0, 0.05)) == [failed, some[4], some[1]]
    assert set(map(id, promising(some, Others(0.0, 0.0)))) == set(map(id, some))
    assert promising(some, Others(2.0, 0.08)) == [some[4]]


def planted(monkeypatch: pytest.MonkeyPatch, wrong: Callable[[int], bool]) -> list[str]:
    """Make the kernels wrong whose number among those of their operator `wrong` accepts; return the wrong ones' digests."""
    generated, seen, made = NativeBackend.generated, dict[Any, dict[bytes, int]](), list[str]()

    def changed(self: NativeBackend, op: Any, schedule: Any, hw: Any) -> Kernel | Measurement:
        kernel = generated(self, op, schedule, hw)
        number = seen.setdefault(op, {}).setdefault(schedule.key, len(seen[op]) if op in seen else 0)
        if not isinstance(kernel, Kernel) or not wrong(number):
            return kernel
        entry = kernel.launches[0].entry
        start = kernel.source.index("{", kernel.source.index(f" {entry}(")) + 1
        spoilt = replace(kernel, source=f"{kernel.source[:start]} return;{kernel.source[start:]}")
        made.append(spoilt.digest)
        return spoilt

    monkeypatch.setattr(NativeBackend, "generated", changed)
    return made


def test_a_wrong_program_is_never_used(module: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's first choice of every piece returns at once: others are tried. If all do, there is no network."""
    spoilt = planted(monkeypatch, lambda number: number == 0)
    found = compiled(module, tmp_path, quality="fast")
    assert len(set(spoilt)) == 2 and not {kernel.digest for kernel in found.kernels} & set(spoilt)
    planted(monkeypatch, lambda number: True)
    with pytest.raises(NoKernel, match="WRONG_ANSWER"):
        compiled(module, tmp_path / "other", quality="fast")


class Clock(NativeBackend):
    """Trials that take 5 ms; `during` has the number of searches that walked while each was timed."""

    def __init__(self) -> None:
        self.name, self.walking, self.during = "cpu", 0, list[int]()

    def device(self, hw: Any) -> str:  # type: ignore[override]
        return "none"

    def generated(self, op: Any, schedule: Any, hw: Any) -> Any:
        return schedule

    def compile(self, kernels: Any) -> Any:
        return [Built(kernel, "") for kernel in kernels]

    def trial(self, built: Any, hw: Any, timed: bool = True, rules: Any = None) -> Measurement:
        time.sleep(5e-3)
        self.during.append(self.walking)
        return Measurement(Status.OK, (1.0,))


@pytest.mark.parametrize("timed", [True, False])
def test_kernels_are_timed_while_nothing_else_runs(timed: bool) -> None:
    backend, told, lock = Clock(), list[str](), threading.Lock()
    rounds = Rounds(backend, hardware.get("cascade_lake"), timed, told.append)

    def search(number: int) -> None:
        for _ in range(3):
            with lock:
                backend.walking += 1
            time.sleep(2e-3 * number)
            with lock:
                backend.walking -= 1
            kernel = Kernel(f"op {number}", "c", "", "", (), 0)  # type: ignore[arg-type]
            assert [one.status for one in rounds.measure("op", [kernel, kernel], None)] == [Status.OK] * 2  # type: ignore[arg-type]

    rounds.run([lambda number=number: search(number) for number in range(6)])
    assert len(told) == len(backend.during) == 36
    assert (max(backend.during) == 0) is timed


def test_an_error_of_one_search_ends_all() -> None:
    rounds, ended = Rounds(Clock(), hardware.get("cascade_lake"), True, print), list[str]()

    def fails() -> None:
        raise ArithmeticError("planted")

    def waits() -> None:
        try:
            rounds.measure("op", [Kernel("op", "c", "", "", (), 0)], None)  # type: ignore[arg-type]
        finally:
            ended.append("waits")

    with pytest.raises(ArithmeticError, match="planted"):
        rounds.run([waits, fails])
    deadline = time.monotonic() + 5.0
    while not ended and time.monotonic() < deadline:
        time.sleep(1e-3)
    assert ended


def test_what_an_effort_is() -> None:
    assert Effort.of(None, None, math.inf) == Effort(QUALITIES["balanced"], True, LOSSES["balanced"])
    assert Effort.of("fast", None, math.inf) == Effort(1, False)
    assert Effort.of("fast", 5, math.inf) == Effort(5, True)
    assert Effort.of("best", None, 10.0).trials == QUALITIES["best"] < Effort.of(None, None, 10.0).trials
    with pytest.raises(ValueError, match="quality 'fats'.*balanced"):
        Effort.of("fats", None, math.inf)
    asked = {"op": type("Asked", (), {"search": Markov(walkers=2)})()}
    assert Effort(1, False).searches(asked) == asked  # type: ignore[arg-type]


def test_lines_of_progress_where_they_are_asked_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.progress.SECONDS", 0.0)
    with shown("bar") as told:
        told(0, 4, "gemm")
        told(2, 4, "gemv")
    assert capsys.readouterr().err == "2 of 4 pieces, about 0 s left: gemv\n"
    with pytest.raises(ValueError, match="on_task='line': expected a function"), shown("line"):  # type: ignore[arg-type]
        pass
