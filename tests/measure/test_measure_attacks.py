"""Ways of earning a reward without the work, and ways of being wrong: each is planted and seen caught.

C kernels run in a worker as in any trial; what only a GPU has (event times, threads of a block) is planted in the fake of
CuPy and in the emulator.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.measure.answers.expectation import ExpectationCache
from gensor_gym.measure.emulator.emulator import find_cxx
from gensor_gym.measure.measurement import UNTIMED, Status
from gensor_gym.measure.stats.floor import MARGIN, warm_floor
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers.process import WorkerLost, WorkerProcess
from gensor_gym.measure.workers.requests import Built, TrialRequest
from gensor_gym.measure.workers.trial import run_trial
from tests.support import fake_cupy
from tests.support.cuda_schedules import make_kernel, make_schedule
from tests.support.measure_kernels import GEMM, build, kernel
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import faults

QUICK = TimingRules(budget=0.02, sample=5e-4, warmup=1e-3)
WRONG, CRASHED, TIMEOUT = Status.WRONG_ANSWER, Status.CRASHED, Status.TIMEOUT

ATTACKS = [
    # writes nothing, or leaves what stands there
    ("nothing written", WRONG, "before timing: 1920 of 1920"),
    ("leaves the edge of the tiles", WRONG, "before timing: 384 of 1920"),
    ("writes the first time", WRONG, "before timing: 1920 of 1920"),
    ("writes twice", WRONG, "after timing: 1920 of 1920"),
    ("skips every other call", WRONG, "on new inputs after timing"),
    ("adds to what was there", WRONG, "before timing"),
    ("remembers its answer", WRONG, "on new inputs after timing"),
    # changes its inputs
    ("modifies an input", WRONG, "input 0 was modified"),
    ("zeros inputs and output", WRONG, "input 0 was modified"),
    # right for some inputs or sizes only, or nearly right
    ("right for zeros only", WRONG, "before timing"),
    ("right for ones only", WRONG, "before timing"),
    ("wrong value", WRONG, "before timing: 1 of 1920"),
    ("drops the last term", WRONG, "before timing"),
    ("half precision", WRONG, "before timing"),
    # outside its buffers
    ("whole tiles over the edge", CRASHED, "SIGSEGV"),
    ("writes just before", WRONG, "outside the buffer of output"),
    ("writes behind the workspace", WRONG, "outside the buffer of workspace"),
    # right when looked at
    ("right the first time", WRONG, "before timing: 1 of 1920"),
    ("right three times", WRONG, "after timing: 1 of 1920"),
    ("wrong in a third of its calls", WRONG, "timing: 1 of 1920"),
    ("races", WRONG, "before timing"),
    # faster than can be
    ("sees that it is done", Status.IMPLAUSIBLE, "roofline floor"),
    # takes the worker with it
    ("exits as if all were well", CRASHED, "exit code 0"),
    ("closes every pipe", CRASHED, "worker died in stage verify"),
    ("infinite loop", TIMEOUT, "stage verify"),
    # a nuisance, and no fault
    ("floods stderr", Status.OK, ""),
]


@pytest.fixture(scope="module")
def worker() -> WorkerProcess:
    process = WorkerProcess("cpu", stage_seconds={"verify": 2.0})
    yield process
    process.close()


@pytest.mark.parametrize(("name", "status", "text"), ATTACKS, ids=[name for name, _, _ in ATTACKS])
def test_attack_is_caught(worker: WorkerProcess, tmp_path: Path, name: str, status: Status, text: str) -> None:
    """The attack has its status and says where it was found; a right kernel after it is OK, with the same floor."""
    floor = MARGIN * warm_floor(GEMM, hardware.get("host"))
    try:
        result = worker.ask(TrialRequest(build(kernel(name), tmp_path), 1, floor, rules=QUICK))
        found, error, seconds = result.status, result.error, result.seconds
    except WorkerLost as loss:
        found, error, seconds = loss.status, str(loss), float("inf")
    assert found is status, error
    assert text in error
    assert (seconds < float("inf")) is (status is Status.OK)
    assert worker.ask(TrialRequest(build(kernel("right"), tmp_path), 1, floor, rules=QUICK)).status is Status.OK


@pytest.mark.parametrize(("name", "status"), [("right", Status.OK), ("wrong value", WRONG), ("writes just before", WRONG)])
def test_a_kernel_that_is_hardly_timed_is_verified(worker: WorkerProcess, tmp_path: Path, name: str, status: Status) -> None:
    """The one call that is timed is the one whose result is checked."""
    built = build(kernel(name), tmp_path)
    for changed in ({"slow": 1e-9}, {"timed": False}):
        request = replace(TrialRequest(built, 1, 0.0, rules=QUICK), **changed)
        result = worker.ask(request)
        assert result.status is status, result.error
        assert len(result.samples) == (status is Status.OK)
        assert bool(result.conditions.get(UNTIMED)) is (status is Status.OK and not request.timed)


@pytest.mark.parametrize("elapsed", thorough_but([-1.0, 0.0, float("nan"), float("inf")], -1.0, float("inf")))
def test_event_times_that_are_no_times(monkeypatch: pytest.MonkeyPatch, elapsed: float) -> None:
    """Events of a GPU that say nothing, or less, are no measurement."""
    monkeypatch.setattr(fake_cupy.module.cuda, "get_elapsed_time", lambda start, end: elapsed)
    relu = fake_cupy.device_module(monkeypatch, lambda _, arguments: np.maximum(arguments[0], 0, out=arguments[1]))
    built = Built(Kernel(operators.elementwise("relu", 64), "cuda", "sm_90", "", (Launch("entry", block=(64, 1, 1)),), 0), "")
    rules = TimingRules(warmup=0.0) if elapsed == 0.0 else TimingRules()
    result = run_trial(relu.CudaDevice(), ExpectationCache(), TrialRequest(built, 1, 0.0, rules=rules), lambda stage: None)
    assert result.status is Status.IMPLAUSIBLE
    assert "the clock says" in result.error and result.samples == () and result.seconds == float("inf")


@pytest.mark.thorough
@pytest.mark.skipif(not find_cxx(), reason="the emulator needs a C++ compiler")
def test_threads_of_a_block_that_race() -> None:
    """Two halves of the reduction, one barrier for the two missing: some order of the threads shows it."""
    sound = make_kernel(GEMM, make_schedule(GEMM, [2, 2, 1], [8, 8, 4]))
    racing = replace(sound, source=sound.source.replace("__syncthreads();", ";"))
    assert racing.source != sound.source
    assert faults([sound], seeds=2) == [] and len(faults([racing], seeds=2)) == 2
