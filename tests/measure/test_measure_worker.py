"""Trials in a worker process: every fault gets its status, and the next trial goes on."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gensor_gym.measure.measurement import Status
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers.process import WorkerLost, WorkerProcess
from gensor_gym.measure.workers.requests import CompareRequest, TrialRequest
from tests.support.measure_kernels import build, kernel
from tests.support.thorough import thorough_but

QUICK = TimingRules(budget=0.02, sample=5e-4, warmup=1e-3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where kernels are compiled to."""
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="module")
def worker() -> WorkerProcess:
    """One worker for all tests, with short deadlines."""
    process = WorkerProcess("cpu", stage_seconds={"verify": 2.0})
    yield process
    process.close()


def trial(worker: WorkerProcess, folder: Path, name: str, floor: float = 0.0, tag: str = "") -> object:
    """Status, samples and text of one trial."""
    return worker.ask(TrialRequest(build(kernel(name, tag=tag), folder), 1, floor, rules=QUICK))


def test_right_kernel_is_ok(worker: WorkerProcess, folder: Path) -> None:
    """Samples and conditions come back."""
    result = trial(worker, folder, "right")
    assert result.status is Status.OK, result.error
    assert len(result.samples) >= 5
    assert 1e-7 < result.seconds < 1e-2
    assert result.digest == kernel("right").digest
    expected = {"device", "compiler", "threads", "protocol", "cache", "compile_seconds", "load_average", "isolation"}
    assert expected | {"anchor_seconds", "anchor_at"} <= set(result.conditions)
    assert 1e-7 < result.conditions["anchor_seconds"] < 1e-2


@pytest.mark.parametrize(
    ("name", "status", "text"),
    [
        pytest.param("invalid address", Status.CRASHED, "SIGSEGV", marks=pytest.mark.thorough),
        ("writes just behind", Status.CRASHED, "SIGSEGV"),  # 7680 bytes end at the unmapped page
        pytest.param("writes far behind", Status.CRASHED, "SIGSEGV", marks=pytest.mark.thorough),
        pytest.param("aborts", Status.CRASHED, "SIGABRT", marks=pytest.mark.thorough),
        ("exits", Status.CRASHED, "exit code 7"),
        pytest.param("infinite loop", Status.TIMEOUT, "stage verify", marks=pytest.mark.thorough),
    ],
)
def test_lost_workers(worker: WorkerProcess, folder: Path, name: str, status: Status, text: str) -> None:
    """A dead or hanging worker is classified and replaced, and nothing of it stays behind."""
    trial(worker, folder, "right")
    old = worker.pid
    with pytest.raises(WorkerLost, match=text) as caught:
        trial(worker, folder, name)
    assert caught.value.status is status
    assert "verify" in str(caught.value)
    assert not Path(f"/proc/{old}").exists()
    assert trial(worker, folder, "right").status is Status.OK
    assert worker.pid != old


def test_error_in_the_worker_is_raised(worker: WorkerProcess) -> None:
    """A request that makes no sense is an error of the harness, not of a kernel."""
    with pytest.raises(RuntimeError, match="unknown request str"):
        worker.ask("nonsense")


def test_missing_file_is_launch_error(worker: WorkerProcess, folder: Path) -> None:
    """The loader's refusal is a status."""
    built = build(kernel("right"), folder)
    broken = type(built)(built.kernel, str(folder / "missing.so"))
    assert worker.ask(TrialRequest(broken, 1, 0.0, rules=QUICK)).status is Status.LAUNCH_ERROR


def test_below_floor_is_implausible(worker: WorkerProcess, folder: Path) -> None:
    """The samples are kept, the latency is infinite."""
    result = trial(worker, folder, "right", floor=1.0)
    assert result.status is Status.IMPLAUSIBLE
    assert result.samples
    assert result.seconds == float("inf")


def test_harness_never_loads_a_kernel(worker: WorkerProcess, folder: Path) -> None:
    """The library is mapped nowhere in this process."""
    assert trial(worker, folder, "right").status is Status.OK
    assert str(folder) not in Path("/proc/self/maps").read_text()


def test_restart_after_some_requests(folder: Path) -> None:
    """A worker is replaced by itself; the answers go on."""
    process = WorkerProcess("cpu", restart_after=2)
    try:
        request = TrialRequest(build(kernel("right"), folder), 1, 0.0, rules=QUICK)
        process.ask(request)
        first = process.pid
        process.ask(request)
        assert process.pid is None
        assert not Path(f"/proc/{first}").exists()
        assert process.ask(request).status is Status.OK
    finally:
        process.close()


def test_comparison_returns_one_sample_a_round(worker: WorkerProcess, folder: Path) -> None:
    """Names come back with as many samples as rounds; a wrong kernel spoils the comparison loudly."""
    good = tuple((tag, build(kernel("right", tag=tag), folder)) for tag in ("a", "b"))
    result = worker.ask(CompareRequest(good, 1, rounds=7, rules=QUICK))
    assert {name: len(samples) for name, samples in result.items()} == {"a": 7, "b": 7}
    ratio = np.median(np.array(result["a"]) / np.array(result["b"]))
    assert 0.3 < ratio < 3.0
    with pytest.raises(RuntimeError, match="bad: 1 of 1920 elements wrong"):
        worker.ask(CompareRequest((*good, ("bad", build(kernel("wrong value"), folder))), 1, rounds=3, rules=QUICK))


def test_timing_repeats(worker: WorkerProcess, folder: Path) -> None:
    """The quietest samples of two trials of one kernel agree, whatever else the machine does."""
    a, b = (min(trial(worker, folder, "right", tag=tag).samples) for tag in "xy")
    assert 0.5 < a / b < 2.0


ORPHAN = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background inherits it ignored
from pathlib import Path
from gensor_gym.measure.workers.process import WorkerProcess
from gensor_gym.measure.workers.requests import TrialRequest
from tests.support.measure_kernels import build, kernel
process = WorkerProcess("cpu")
folder = Path(sys.argv[1])
hanging = build(kernel("infinite loop"), folder)  # compiled before the signal, so that it finds the kernel running
process.ask(TrialRequest(build(kernel("right"), folder), 1, 0.0))
print(process.pid, flush=True)
if sys.argv[2] != "exit":
    process.ask(TrialRequest(hanging, 1, 0.0))
"""


@pytest.mark.parametrize("end", thorough_but(["exit", "hang", "interrupt"], "hang"))
def test_no_orphans(folder: Path, end: str) -> None:
    """The worker goes with its parent: at its normal end, and at kill -9 or Ctrl-C while a kernel hangs."""
    harness = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(ORPHAN), str(folder), end],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    child = int(harness.stdout.readline())
    last = {"exit": 0, "hang": signal.SIGKILL, "interrupt": signal.SIGINT}[end]
    if last:
        time.sleep(0.5)
        os.kill(harness.pid, last)
    assert harness.wait(timeout=20) == -last
    harness.stdout.close()
    deadline = time.monotonic() + 5.0
    while _alive(child):
        assert time.monotonic() < deadline, "the worker outlives its parent"
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    """Whether a process runs (a zombie that nobody here can reap does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_forked_child_has_a_worker_of_its_own(worker: WorkerProcess, folder: Path) -> None:
    """Vector environments fork: the child does not talk into its parent's pipe, nor end its parent's worker."""
    trial(worker, folder, "right")
    pid = worker.pid

    def in_child() -> None:
        result = trial(worker, folder, "right")
        other = worker.pid
        worker.close()
        os._exit(0 if result.status is Status.OK and other != pid else 1)

    child = multiprocessing.get_context("fork").Process(target=in_child)
    child.start()
    child.join(timeout=20)
    assert child.exitcode == 0
    assert trial(worker, folder, "right").status is Status.OK
    assert worker.pid == pid


def test_threads_take_turns(worker: WorkerProcess, folder: Path) -> None:
    """Requests of several threads are answered one after the other, each with its own kernel's answer."""
    names = ["right", "wrong value"] * 3
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda name: trial(worker, folder, name), names))
    assert [r.status for r in results] == [Status.OK, Status.WRONG_ANSWER] * 3
    assert [r.digest for r in results] == [kernel(name).digest for name in names]
