"""Stopping: one signal ends a command at a safe point with a line and code 130, a second one at once, whatever it is doing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest

from agents.cli.refusal import refusals
from agents.cli.stopping import CODE, asked, at_safe_points, stoppable
from agents.core.workers import shared_out
from agents.runs import jobs
from agents.runs.pool import side_by_side
from experiments.entry import COMMANDS, how_to_go_on

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.usefixtures("heard")
NOISE = ("Traceback", "Exception ignored", "KeyboardInterrupt")


@contextmanager
def signalled(after: float, number: int = signal.SIGINT) -> Iterator[None]:
    """Within `stoppable`, which must listen by then: what it leaves behind ends the process at the next signal."""
    timer = threading.Timer(after, os.kill, (os.getpid(), number))
    timer.start()
    try:
        yield
    finally:
        timer.join()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_with_a_line_and_its_code(number: int, capfd: pytest.CaptureFixture[str]) -> None:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    begin = time.monotonic()
    with pytest.raises(SystemExit) as ended, stoppable("gensor train"), signalled(0.1, number):
        time.sleep(20)
    assert ended.value.code == CODE == 130 and time.monotonic() - begin < 5
    said = capfd.readouterr().err
    assert said.splitlines()[-1] == "Stopped. gensor train" and not any(word in said for word in NOISE)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask
    assert not asked(), "a training in the same process would stop at its first step"


def test_at_safe_points_nothing_is_raised_and_afterwards_it_is() -> None:
    seen = []
    with pytest.raises(SystemExit), stoppable(""), signalled(0.1):
        with at_safe_points():
            time.sleep(0.4)
            seen.append(asked())
        time.sleep(20)
        seen.append(False)
    assert seen == [True]


def cleaned_up(*_: object) -> None:
    """What libraries do that are interrupted where they make something: they fail where they clean up."""
    try:
        time.sleep(20)
    finally:
        raise ValueError("half made")


@pytest.mark.parametrize("within", ["command", "search", "warm-up"])
def test_an_error_that_a_stop_causes_is_the_stop(
    within: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jobs, "_search", cleaned_up)
    monkeypatch.setattr(jobs, "get_strategy", cleaned_up)
    job: Any = SimpleNamespace(of="markov", hyperparameters={})
    begun = {"command": cleaned_up, "search": lambda: jobs.attempt(job, job, None, print), "warm-up": lambda: jobs.warm_up(job)}
    with pytest.raises(SystemExit) as ended, stoppable("again"), refusals(), signalled(0.1):
        begun[within]()
    said = capfd.readouterr().err
    assert ended.value.code == CODE and said.endswith("Stopped. again\n") and "half made" not in said


@pytest.mark.thorough
def test_a_stop_that_was_swallowed_comes_again() -> None:
    """And one that somebody handles, or that ended a search whose results are still written, does not."""
    begin, seen = time.monotonic(), list[str]()
    with pytest.raises(SystemExit) as ended, stoppable(""), signalled(0.1):
        try:
            time.sleep(20)
        except BaseException:
            time.sleep(1.5)  # while it is handled nothing comes
            seen.append("handled")
        time.sleep(20)
        seen.append("lost")
    assert ended.value.code == CODE and seen == ["handled"] and 1.5 < time.monotonic() - begin < 6
    with pytest.raises(SystemExit), stoppable(""), signalled(0.1):
        try:
            time.sleep(20)
        except KeyboardInterrupt:
            seen.append("caught")
        time.sleep(0.5)  # there is time to end in its own way
        seen.append("written")
        time.sleep(20)
    assert seen == ["handled", "caught", "written"]


def squares(n: int) -> int:
    total = 0
    for i in range(n):
        for j in range(i):
            total += i * j if (i + n) % 3 else n // (j + 1)
    return total


@pytest.mark.thorough
def test_numba_compiles_and_no_frame_of_llvm_is_seen(capfd: pytest.CaptureFixture[str]) -> None:
    """At ten moments of it."""
    rng = np.random.default_rng(0)
    numba.njit(squares)(3)  # what Numba imports on the way cannot be imported again in a process that was stopped there
    for _ in range(10):
        end = time.monotonic() + 30
        with pytest.raises(SystemExit) as ended, stoppable(""), signalled(rng.uniform(0.02, 0.2)):
            while time.monotonic() < end:
                numba.njit(squares)(3)
        assert ended.value.code == CODE
    said = capfd.readouterr().err
    assert said.count("Stopped.") == 10 and not any(word in said for word in NOISE)


def test_work_that_is_shared_out_is_compiled_where_signals_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENSOR_GYM_THREADS", "3")
    main, pause = threading.main_thread(), 20.0

    def work(_part: slice) -> bool:
        time.sleep(pause)
        return threading.current_thread() is main

    begin = time.monotonic()
    with pytest.raises(SystemExit), stoppable(""), signalled(0.1):
        shared_out(work, 6)
    assert time.monotonic() - begin < 5
    pause = 0.0
    assert shared_out(work, 6) == [True, False, False], "it was not done before"
    assert shared_out(work, 6) == [False] * 3 and shared_out(work, 1) == [False]
    monkeypatch.setenv("GENSOR_GYM_THREADS", "-1")
    with pytest.raises(ValueError, match="THREADS='-1' must be"):
        shared_out(work, 6)


def test_finalizers_do_not_swallow_it() -> None:
    class Slow:
        def __del__(self) -> None:
            end = time.monotonic() + 0.3
            while time.monotonic() < end:
                pass

    begin = time.monotonic()
    with pytest.raises(SystemExit), stoppable(""), signalled(0.1):
        Slow()
        time.sleep(20)
    assert time.monotonic() - begin < 5


HELD = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from agents.cli.stopping import asked, at_safe_points, stoppable
with stoppable("again"), at_safe_points():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
    time.sleep(0.3)
    print("ready", flush=True)
    while not asked():
        time.sleep(0.01)
    time.sleep(0.3)
    print("child alive" if child.poll() is None else "child gone", flush=True)
    time.sleep(30)
"""


def test_the_second_signal_ends_at_once_and_children_do_not_hear_the_terminal() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HELD], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: all of the group
        assert process.stdout.readline() == "child alive\n"
        begin = time.monotonic()
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(5) == CODE and time.monotonic() - begin < 2
        os.killpg(process.pid, signal.SIGKILL)
        assert not any(word in process.stderr.read() for word in NOISE)


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@pytest.mark.thorough
def test_searches_in_processes_end_with_it(capfd: pytest.CaptureFixture[str]) -> None:
    found = []
    begin = time.monotonic()
    with pytest.raises(SystemExit), stoppable(""):
        for seconds in side_by_side(nap, [0.0, 600.0], 1):
            found.append(seconds)
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    assert found == [0.0] and time.monotonic() - begin < 60
    assert not any(word in capfd.readouterr().err for word in NOISE)


def test_every_command_says_how_to_go_on() -> None:
    for name in COMMANDS:
        assert how_to_go_on(name, ["a=b c"]).endswith(f": gensor {name} 'a=b c'")
    assert how_to_go_on("train", ["resume=false", "seed=1"]) == "This goes on from there: gensor train seed=1"
    assert how_to_go_on("explain", []) == "This begins anew: gensor explain"


@pytest.mark.thorough
def test_a_command_that_compiles_is_stopped_without_a_traceback(tmp_path: Path) -> None:
    """The whole of one, with an empty cache of Numba's."""
    (cache := tmp_path / "numba").mkdir()
    script = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from experiments.entry import main; main()"
    words = ["compare", "operator=gemm(m=24, n=20, k=28)", "strategy=random_walk", "backend=analytic", "hardware=h200"]
    with subprocess.Popen(
        [sys.executable, "-c", script, *words, f"output={tmp_path / 'out'}", "wandb.mode=disabled", "budget.trials=100000"],
        cwd=ROOT, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
    ) as process:  # fmt: skip
        deadline = time.monotonic() + 60
        while not any(cache.rglob("*.nb?")) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == CODE, said
    assert "This goes on from there: gensor compare 'operator=gemm(m=24, n=20, k=28)'" in said
    assert not any(word in said for word in NOISE)
