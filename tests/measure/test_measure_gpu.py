"""What of GPU measurement can be tested without a GPU: compilation in its own process, the emulated backend."""

from __future__ import annotations

import time
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.codegen import generate
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.construction import ConstructionGraph
from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.suite import make
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import LEVEL, MAX_AXES, MAX_LEVELS, SPATIAL_SLOTS, TILE, VTHREAD
from gensor_gym.measure.answers.device_draws import SETTING
from gensor_gym.measure.answers.device_fused import DeviceFused
from gensor_gym.measure.answers.downloaded import Downloaded
from gensor_gym.measure.answers.expectation import ExpectationCache
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.emulator.backend import EmulatedBackend, least_seconds
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.workers.builders import CompileFailed
from gensor_gym.measure.workers.compile_pool import CompilePool
from gensor_gym.measure.workers.requests import Built, TrialRequest
from gensor_gym.measure.workers.trial import DeviceLost, run_trial
from tests.support import fake_cupy

HW = hardware.get("h200")
OP = operators.elementwise("relu", 64)
TEXT = """extern "C" __global__ void entry(const float *x, float *y, float *w) {
  y[threadIdx.x] = fmaxf(x[threadIdx.x], 0);
}"""


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CompilePool:
    if not nvrtc.is_available():
        pytest.skip("NVRTC is not installed")
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path))
    made = CompilePool(size=1, seconds=60.0)
    yield made
    made.close()


@pytest.mark.thorough
def test_cubins_are_made_in_a_process_of_their_own(pool: CompilePool) -> None:
    good = Kernel(OP, "cuda", "sm_90", TEXT, (Launch("entry", block=(64, 1, 1)),), 0)
    built = pool(good)
    assert Path(built.path).read_bytes()[:4] == b"\x7fELF"
    assert built.compiler.startswith("nvrtc 13")
    assert built.kernel == good
    bad = Kernel(OP, "cuda", "sm_90", TEXT.replace("fmaxf", "nonsense"), good.launches, 0)
    with pytest.raises(CompileFailed, match="nonsense"):
        pool(bad)
    assert pool(good).path == built.path


def test_emulated_says_whether_a_kernel_is_right() -> None:
    op = operators.gemm(m=16, n=12, k=10)
    graph = ConstructionGraph(op, HW)
    schedule = graph.random_schedule(np.random.default_rng(0))
    backend = get_backend("emulated", HW)
    (result,) = backend.measure(op, [schedule], HW)
    assert result.status is Status.OK, result.error
    assert result.samples == ()
    assert result.seconds == float("inf")
    assert result.conditions["timed"] is False
    assert result.digest == backend.digest(op, schedule, HW)


@pytest.mark.thorough
def test_emulated_refuses_at_once_what_it_cannot_do_in_time() -> None:
    op = operators.gemm(m=4096, n=4096, k=4096)
    schedule = ConstructionGraph(op, HW).initial()
    with pytest.raises(ValueError, match=r"has 6.9e\+10 points: expected at most 1.8e\+10.*120 s; choose a smaller"):
        get_backend("emulated", HW).measure(op, [schedule], HW)
    op = operators.gemm(m=64, n=64, k=16)
    graph = ConstructionGraph(op, HW)
    start = graph.initial()
    begin = time.perf_counter()
    (slow,) = EmulatedBackend(timeout=0.04).measure(op, [start], HW)  # 4096 threads of 16 steps each
    assert time.perf_counter() - begin < 0.5  # nothing was compiled
    assert slow.status is Status.TIMEOUT
    assert "gemm(m=64, n=64, k=16): not tried" in slow.error and "has 0.04 s" in slow.error
    row = graph.initial().row.copy()
    row[LEVEL] = 1
    row[TILE:VTHREAD].reshape(MAX_LEVELS, MAX_AXES)[1:, SPATIAL_SLOTS] = 16  # 4096 threads, each in one step
    fast = Schedule(row)
    assert least_seconds(generate(op, fast, HW), fast, HW) < 0.01 < 0.04 < least_seconds(generate(op, start, HW), start, HW)
    assert [m.status for m in EmulatedBackend(timeout=60.0).measure(op, [start, fast], HW)] == [Status.OK, Status.OK]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """`measure.cuda_device` over a CuPy made of NumPy."""
    return fake_cupy.device_module(monkeypatch, relu)


def relu(entry: str, arguments: tuple) -> None:
    x, y, _ = arguments
    y[...] = np.maximum(x, 0)


def run(cuda_device: types.ModuleType, shared: int = 0) -> Measurement:
    launches = (Launch("entry", block=(64, 1, 1), shared_bytes=shared),)
    built = Built(Kernel(OP, "cuda", "sm_90", TEXT, launches, 10), "none.cubin")
    return run_trial(cuda_device.CudaDevice(), ExpectationCache(), TrialRequest(built, 1, 0.0), lambda stage: None)


def test_trial_on_a_gpu_of_numpy(fake: types.ModuleType) -> None:
    """Verification passes and the time of a call is that of one launch, however many a graph holds."""
    result = run(fake)
    assert result.status is Status.OK, result.error
    assert result.seconds == pytest.approx(fake_cupy.Clock.seconds)
    assert result.conditions["device"] == "Fake GPU"
    assert result.conditions["registers"] == 32
    assert result.conditions["calls_per_sample"] in (20, 21)
    assert run(fake, shared=100 * 1024).status is Status.OK  # the limit is raised before the launch


def test_faults_on_a_gpu_of_numpy(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel_that(does: Callable[[np.ndarray, np.ndarray, np.ndarray], None]) -> Measurement:
        def launch(entry: str, arguments: tuple) -> None:
            relu(entry, arguments)
            does(*arguments)

        monkeypatch.setattr(fake_cupy.module, "launch", launch)
        return run(fake)

    def beyond(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> None:
        np.lib.stride_tricks.as_strided(y, (y.size + 1,))[-1] = 1.0

    def refuse(*_: object) -> None:
        raise fake_cupy.CUDADriverError("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested for launch")

    def poison(*_: object) -> None:
        raise fake_cupy.CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")

    assert "modified" in kernel_that(lambda x, y, w: x.__setitem__(3, 0.0)).error
    assert "outside the buffer of output" in kernel_that(beyond).error
    assert kernel_that(lambda x, y, w: y.__setitem__(0, 5.0)).status is Status.WRONG_ANSWER
    assert kernel_that(refuse).status is Status.LAUNCH_ERROR
    with pytest.raises(DeviceLost, match="IllegalAddress"):
        kernel_that(poison)


@pytest.mark.parametrize("wrong, status", [(False, Status.OK), (True, Status.WRONG_ANSWER)])
def test_fused_operators_are_verified_by_all_their_outputs(
    fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch, wrong: bool, status: Status
) -> None:
    op = make("add_layernorm", m=3, n=40)
    kernel = generate(op, GirSchedule.parse("vector=4 place=reg,reg"), hardware.get("h100"))

    def launch(entry: str, arguments: tuple) -> None:
        inputs, outputs = arguments[: len(op.inputs)], arguments[len(op.inputs) : -1]
        for output, expected in zip(outputs, evaluate(op, inputs), strict=True):
            output[...] = expected.value
        outputs[1][2, 7] += 1.0 if wrong else 0.0

    monkeypatch.setattr(fake_cupy.module, "launch", launch)
    device = fake.CudaDevice()
    request = TrialRequest(Built(kernel, "none.cubin"), 1, 0.0)
    measured = run_trial(device, ExpectationCache(device.draws), request, lambda stage: None)
    assert measured.status is status and (not wrong or measured.error.startswith("before timing: output 1: 1 of 120"))
    with pytest.raises(ValueError, match="torch has no one operation that is timed beside a fused operator"):
        device.baseline(op, device.draws(op, 0)[0], 1, "torch")


def test_fused_outputs_are_compared_on_the_device_and_explained_on_the_host(fake: types.ModuleType) -> None:
    """Infinities and numbers that are none are off for the device, and right where they should be so."""
    op, device = make("softmax", m=3, n=40), fake.CudaDevice()
    draw = device.draws(op, 0)[0]
    assert isinstance(draw, DeviceFused)
    buffers = [fake.DeviceBuffer(tensor.shape, "float32") for tensor in (*op.inputs, *op.outputs)]
    buffers[0].fill(draw.inputs[0])
    output = buffers[1].array
    output[...] = evaluate(op, [np.asarray(draw.inputs[0])])[0].value
    assert draw.fault(output) == "" and draw.changed([buffers[0].array]) == ""
    output[2, 3] += 0.5
    assert draw.fault(output).startswith("1 of 120 elements wrong; first at (2, 3)")
    expected = draw.host.draw.outputs[0]
    infinite = np.array(expected.value)
    infinite[2, 3] = output[2, 3] = np.inf
    object.__setattr__(expected, "value", infinite)
    assert draw.fault(output) == ""
    buffers[0].array[0, 0] += 1.0
    assert draw.changed([buffers[0].array]) == "input 0 was modified"
    draw.expected[0][0][5] += 1.0
    with pytest.raises(DeviceLost, match="wrote over the reference answers of softmax"):
        draw.changed([buffers[0].array])


def test_references_of_fused_operators_by_the_host_alone(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the variable says; the outputs are downloaded to be looked at."""
    monkeypatch.setenv(SETTING, "host")
    assert all(isinstance(draw, Downloaded) for draw in fake.CudaDevice().draws(make("softmax", m=3, n=40), 0))
