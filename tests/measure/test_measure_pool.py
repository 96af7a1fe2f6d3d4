"""Pools: order, back-pressure, faults at random, replacement, a clean end."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.session import MOODS
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers.builders import CompileFailed, build_c
from gensor_gym.measure.workers.pool import LocalPool, compiled
from gensor_gym.measure.workers.process import WorkerProcess
from gensor_gym.measure.workers.requests import Built, Comparison, Trial, TrialRequest
from tests.support.measure_kernels import BODIES, build, kernel
from tests.support.resident import resident
from tests.support.thorough import thorough_but

QUICK = TimingRules(budget=2e-3, sample=1e-4, warmup=0.0, least=1, most=2)
SHORT = {"verify": 3.0, "time": 6.0, "check": 6.0}  # a busy machine has stalls of a second or two
STATUS = {
    "right": {Status.OK},
    "invalid address": {Status.CRASHED},
    "infinite loop": {Status.TIMEOUT},
    "wrong value": {Status.WRONG_ANSWER},
    "writes far behind": {Status.CRASHED},
    "writes just before": {Status.WRONG_ANSWER},
    "exits as if all were well": {Status.CRASHED},
    "closes every pipe": {Status.CRASHED},
    "floods stderr": {Status.OK},
    "refused": {Status.COMPILE_ERROR},
}
"""What is injected, and the status that it must have."""


def children() -> set[int]:
    """Processes whose parent is this one."""
    text = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(os.getpid())], capture_output=True, text=True).stdout
    return {int(line.split()[0]) for line in text.splitlines() if line.split()[1] != "ps"}


class Compiler:
    """Files made once per kind of kernel, and given to every kernel of that kind; counts what it has begun."""

    def __init__(self, folder: Path) -> None:
        self.begun = 0
        self.files = {name: build(kernel(name), folder).path for name in STATUS if name in BODIES}
        self.lock = threading.Lock()

    def __call__(self, wanted: object) -> Built:
        with self.lock:
            self.begun += 1
        name = wanted.source.split("/* ")[-1].split(" @")[0]
        if "refused" in wanted.source:
            raise CompileFailed("refused")
        return Built(wanted, self.files[name])


def trial(name: str, number: int) -> Trial:
    """A trial of its own digest."""
    made = kernel("right" if name == "refused" else name, tag=f"@{number}" + (" refused" if name == "refused" else ""))
    return Trial(made, 1, 0.0, rules=QUICK)


@pytest.fixture
def compiler(tmp_path: Path) -> Compiler:
    return Compiler(tmp_path)


SEVERAL = pytest.param(12, marks=pytest.mark.thorough)
MANY = pytest.param(2000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])


@pytest.mark.parametrize("trials", [SEVERAL, MANY])
def test_faults_at_random(compiler: Compiler, trials: int) -> None:
    """A tenth of the trials goes wrong somehow: every one has its status, in order, and nothing is left behind."""
    rng = np.random.default_rng(7)
    faults = [name for name in STATUS if name != "right"]
    names = ["right" if rng.random() > 0.1 else str(rng.choice(faults)) for _ in range(trials)]
    before, files = children(), len(os.listdir("/proc/self/fd"))
    pool = LocalPool(compiler, [WorkerProcess("cpu", restart_after=100, stage_seconds=SHORT) for _ in range(2)])
    wanted = [trial(name, number) for number, name in enumerate(names)]
    found, memory = [], []
    for measurement in pool.stream(wanted):
        found.append((measurement.status, measurement.digest))
        if len(found) % max(1, trials // 10) == 0:
            gc.collect()
            memory.append(resident())
    pool.close()
    assert [digest for _, digest in found] == [one.kernel.digest for one in wanted]
    assert [pair for pair in zip(names, (status for status, _ in found), strict=True) if pair[1] not in STATUS[pair[0]]] == []
    assert children() == before and len(os.listdir("/proc/self/fd")) <= files
    assert memory[-1] - memory[0] < 8 << 20, memory
    print(f"{trials} trials, {len(set(names))} kinds, resident MiB {[size >> 20 for size in memory]}")


@pytest.mark.parametrize(("overlap", "most"), thorough_but([(False, 4), (True, 8)], (True, 8)))
def test_no_more_is_begun_than_the_caller_takes(compiler: Compiler, overlap: bool, most: int) -> None:
    """Trials without end: what is compiled ahead is bounded, and leaving the stream ends it."""

    def endless() -> Iterator[Trial]:
        number = 0
        while True:
            number += 1
            yield trial("right", number)

    pool = LocalPool(compiler, [WorkerProcess("cpu")], overlap, ahead=4)
    stream = pool.stream(endless())
    assert next(stream).status is Status.OK
    assert compiler.begun <= most
    for _ in range(4):
        next(stream)
    assert 4 < compiler.begun <= most + 4
    stream.close()
    pool.close()
    assert compiler.begun <= most + 4


@pytest.mark.thorough
def test_several_workers_answer_in_order(compiler: Compiler) -> None:
    """Two workers take turns at the device; a crash in one disturbs nobody."""
    names = ["right", "invalid address", "right", "wrong value", "right", "right", "refused", "right"]
    workers = [WorkerProcess("cpu", stage_seconds=SHORT) for _ in range(2)]
    pool = LocalPool(compiler, workers, ahead=3)
    wanted = [trial(name, number) for number, name in enumerate(names)]
    found = list(pool.stream(iter(wanted)))
    assert all(worker.pid is not None for worker in workers)
    pool.close()
    assert [m.digest for m in found] == [one.kernel.digest for one in wanted]
    assert all(m.status in STATUS[name] for name, m in zip(names, found, strict=True))
    assert all(worker.pid is None for worker in workers)


INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background inherits it ignored
from pathlib import Path
from gensor_gym.measure.workers.pool import LocalPool
from gensor_gym.measure.workers.process import WorkerProcess
from gensor_gym.measure.workers.requests import Trial
from tests.support.measure_kernels import build, kernel
from tests.support.resident import resident
folder = Path(sys.argv[1])
workers = [WorkerProcess("cpu", stage_seconds={"verify": 100.0}) for _ in range(int(sys.argv[2]))]
pool = LocalPool(lambda wanted: build(wanted, folder), workers)
names = ["right"] * 4 + ["infinite loop"] * 4
try:
    for number, _ in enumerate(pool.stream(Trial(kernel(n, tag=str(i)), 1, 0.0) for i, n in enumerate(names))):
        if number == 3:
            print(*[worker.pid for worker in workers if worker.pid], flush=True)
except KeyboardInterrupt:
    pool.close()
    sys.exit(5)
"""


@pytest.mark.parametrize("workers", thorough_but([1, 2], 2))
def test_interrupt_ends_everything_at_once(tmp_path: Path, workers: int) -> None:
    """Ctrl-C while kernels hang, long before their deadline."""
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path), str(workers)]
    harness = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    with harness:
        pids = [int(pid) for pid in harness.stdout.readline().split()]
        time.sleep(0.5)
        harness.send_signal(signal.SIGINT)
        assert harness.wait(timeout=20) == 5
    assert len(pids) == workers
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_comparison_names_what_does_not_compile(compiler: Compiler) -> None:
    pool = LocalPool(compiler, [WorkerProcess("cpu")])
    kernels = (("good", trial("right", 0).kernel), ("bad", trial("refused", 1).kernel))
    with pytest.raises(ValueError, match="bad cannot be compared: COMPILE_ERROR: refused"):
        pool.compare(Comparison(kernels, 1, 3, rules=QUICK))
    assert list(pool.compare(Comparison(kernels[:1], 1, 3, rules=QUICK))) == ["good"]
    pool.close()


def test_a_pool_needs_a_worker(compiler: Compiler) -> None:
    with pytest.raises(ValueError, match="0 workers"):
        LocalPool(compiler, [])
    with pytest.raises(ValueError, match="ahead=0"):
        LocalPool(compiler, [WorkerProcess("cpu")], ahead=0)


class Instant(WorkerProcess):
    """A device that answers at once and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.asked: list[str] = []

    def ask(self, request: TrialRequest) -> Measurement:
        digest = request.built.kernel.digest
        self.asked.append(digest)
        return Measurement(Status.OK, (1.0,), digest=digest)


def test_a_device_waits_for_no_straggler() -> None:
    """The kernel that takes longest to compile is timed last; results come in the order of trials all the same."""
    wanted = [trial("right", number) for number in range(6)]
    others = threading.Semaphore(0)

    def compile_kernel(one: Kernel) -> Built:
        if one == wanted[0].kernel:
            for _ in wanted[1:]:
                assert others.acquire(timeout=60)
        elif one == wanted[3].kernel:
            raise CompileFailed("refused")
        return Built(one, "none")

    class Counting(LocalPool):
        def time(self, worker: WorkerProcess, one: Trial, built: Built | Measurement) -> Measurement:
            if one != wanted[0]:
                others.release()
            return super().time(worker, one, built)

    device = Instant()
    found = list(Counting(compile_kernel, [device], overlap=True).stream(iter(wanted)))
    digests = [one.kernel.digest for one in wanted]
    assert [one.digest for one in found] == digests
    assert [one.status for one in found].count(Status.COMPILE_ERROR) == 1 and found[3].status is Status.COMPILE_ERROR
    assert device.asked[-1] == digests[0] and set(device.asked) == {*digests} - {digests[3]}


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("gcc: fatal error: Killed signal terminated program cc1", Status.CRASHED),
        ("/usr/bin/ld: final link failed: No space left on device", Status.CRASHED),
        ("kernel.c:1:1: error: unknown type name", Status.COMPILE_ERROR),
    ],
)
def test_a_compiler_that_was_killed_says_nothing_about_the_kernel(
    said: str, status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "cc"
    fake.write_text(f"#!/bin/sh\nif [ $1 = --version ]; then echo gcc {tmp_path}; else echo '{said}' >&2; exit 1; fi\n")
    fake.chmod(0o700)
    monkeypatch.setenv("GENSOR_GYM_CC", str(fake))
    found = compiled(build_c, kernel("right", tag="@lost"))
    assert isinstance(found, Measurement) and found.status is status and said in found.error
    assert (status in MOODS) == (status is Status.CRASHED)  # such trials are not taken from a store
