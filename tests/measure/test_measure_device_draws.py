"""References, bounds and comparisons of the device: the text runs in the emulator and is held against NumPy."""

from __future__ import annotations

import types
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.measure.answers import device_draws as dd
from gensor_gym.measure.answers import reference_kernels
from gensor_gym.measure.answers.device_draws import DeviceDraw, ReferenceFault, check_spots, device_draws
from gensor_gym.measure.answers.expectation import ExpectationCache, make_draws
from gensor_gym.measure.answers.reference_kernels import ENTRIES, SOURCE, ReferenceKernels
from gensor_gym.measure.emulator.emulator import EmulatorError, find_cxx
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.stats.timing import TimingRules, calls_per_sample
from gensor_gym.measure.workers.compare import _interleave, run_comparison
from gensor_gym.measure.workers.requests import Built, CompareRequest, TrialRequest
from gensor_gym.measure.workers.trial import DeviceLost, run_trial
from gensor_gym.operators.inputs import decode, to_bfloat16
from gensor_gym.operators.types import ARRAY_DTYPE
from tests.support import fake_cupy, reference_emulator
from tests.support.thorough import thorough_but

LIMIT = 1 << 30
FAMILIES = (
    "gemm(m=70, n=67, k=19{})", "gemm(m=5, n=130, k=33{})+bias+relu+residual", "batched_gemm(b=3, m=9, n=7, k=5{})+bias",
    "gemv(m=70, k=37{})+bias", "conv2d(n=2, c=6, h=9, w=8, k=4, r=3, s=2, stride=2, padding=(1, 0), groups=2{})+bias+relu",
    "conv2d(n=1, c=3, h=11, w=10, k=5, r=3, s=3, padding=2, dilation=(2, 1){})+residual",
    "depthwise_conv2d(n=2, c=5, h=9, w=9, r=3, s=3, stride=2, padding=1{})+bias",
)  # fmt: skip
PRODUCTS = [text.format(f', dtype="{dtype}"') for text in FAMILIES
            for dtype in ("float32", "tf32", "tf32x3", "float16", "bfloat16", "int8")]  # fmt: skip
OTHERS = [
    text.format(f', dtype="{dtype}"')
    for dtype in ("float32", "float16", "bfloat16", "int8")
    for text in (
        "reduce_sum(m=70, k=19{})+bias",
        "max_pool2d(n=2, c=3, h=9, w=9, r=3, s=3, stride=2, padding=1{})",
        "max_pool2d(n=1, c=2, h=7, w=8, r=2, s=3, stride=1, padding=(1, 0){})+relu",
        'elementwise(name="add", shape=(30, 7){})+bias+relu',
        'elementwise(name="mul", shape=(5, 6, 7){})+residual',
        'elementwise(name="relu", shape=(300,){})',
    )
]
FLOATING = [
    text.format(f', dtype="{dtype}"')
    for dtype in ("float32", "float16", "bfloat16")
    for text in (
        "avg_pool2d(n=2, c=3, h=9, w=9, r=3, s=3, stride=2, padding=1{})+scale",
        "gemm(m=9, n=8, k=7{})+bias+gelu+scale",
        *(f'elementwise(name="{name}", shape=(4, 50){{}})' for name in ("gelu", "sigmoid", "tanh", "exp", "copy")),
    )
]


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> ReferenceKernels:
    """The text in the emulator, no compiler of CUDA asked."""
    try:
        find_cxx()
    except EmulatorError as error:
        pytest.skip(str(error))
    nothing = nvrtc.CompiledKernel(b"", 0, 0, 0, "")
    monkeypatch.setattr(reference_kernels, "compile_text", lambda *_: nothing)
    return ReferenceKernels(fake_cupy.module, "sm_90", nullcontext)


def planted(monkeypatch: pytest.MonkeyPatch, before: str, after: str) -> None:
    """The text with a mistake in it."""
    text = SOURCE.read_text("utf-8")
    assert before in text
    monkeypatch.setattr(reference_emulator, "text", lambda: text.replace(before, after))


def as_output(op: operators.Operator, values: np.ndarray) -> np.ndarray:
    """Values as a kernel writes them, on the device."""
    kind = op.output.dtype
    held = to_bfloat16(values) if kind == "bfloat16" else values.astype(ARRAY_DTYPE[kind])
    return held.reshape(op.output.shape).view(fake_cupy.Array)


EVERY = [*PRODUCTS, *OTHERS, *FLOATING]


@pytest.mark.parametrize("text", thorough_but(EVERY, *PRODUCTS[::12], *OTHERS[::4], *FLOATING[::4]))
def test_whole_draws_are_the_hosts(kernels: ReferenceKernels, text: str) -> None:
    """The same inputs bit for bit, references and bounds within rounding, and the same words for an output."""
    op = operators.parse(text)
    for there, here in zip(device_draws(kernels, op, 3, LIMIT), make_draws(op, 3), strict=True):
        assert there.index is None and here.index is None
        assert all(np.array_equal(a, b) for a, b in zip(there.inputs, here.inputs, strict=True))
        reference, bound = (np.asarray(a).reshape(op.output.shape) for a in (there.reference, there.bound))
        assert np.allclose(reference, here.reference, rtol=1e-13, atol=1e-13 * np.abs(here.reference).max())
        assert np.allclose(bound, here.bound, rtol=1e-12, atol=0.0)
    output = as_output(op, here.reference)
    assert there.fault(output) == here.fault(decode(np.asarray(output), op.output.dtype)) == ""
    for i in (1, -2):  # 120 as bits of bfloat16
        output.reshape(-1)[i] = 0x42F0 if output.dtype == np.uint16 else output.reshape(-1)[i] + 7
    words = there.fault(output)
    wanted = here.fault(decode(np.asarray(output), op.output.dtype))
    assert words.startswith(f"2 of {op.output.size} elements wrong; first at ")
    assert words.split(" for ")[0] == wanted.split(" for ")[0]
    assert there.distance(output) == pytest.approx(here.distance(decode(np.asarray(output), op.output.dtype)))


def test_more_batches_than_a_grid_has(kernels: ReferenceKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks go on to the next batch, with the same shared memory."""
    monkeypatch.setattr(reference_kernels, "_MOST_BATCHES", 2)
    op = operators.batched_gemm(5, 70, 7, 20)
    draw, here = device_draws(kernels, op, 0, LIMIT)[0], make_draws(op, 0)[0]
    assert np.allclose(np.asarray(draw.reference).reshape(op.output.shape), here.reference, rtol=1e-12, atol=1e-12)


def test_nan_and_infinity_are_wrong(kernels: ReferenceKernels) -> None:
    for dtype in ("float32", "float16", "bfloat16"):
        op = operators.gemm(9, 7, 5, dtype=dtype)
        draw = device_draws(kernels, op, 0, LIMIT)[0]
        output = as_output(op, np.asarray(draw.reference))
        output.view(np.uint8).reshape(-1)[-output.itemsize :] = 0xFF
        assert "1 of 63 elements wrong; first at (8, 6): " in draw.fault(output) and "nan) for" in draw.fault(output)
        infinite = {"float32": 0x7F800000, "float16": 0x7C00, "bfloat16": 0x7F80}[dtype]
        output.view(np.uint32 if dtype == "float32" else np.uint16).reshape(-1)[3] = infinite
        assert "2 of 63 elements wrong; first at (0, 3): " in draw.fault(output)


@pytest.mark.thorough
def test_every_half_is_read_right(kernels: ReferenceKernels) -> None:
    """All 65,536 patterns of float16: what is no number is found as such, the others are exact."""
    op = operators.elementwise("copy", 1 << 16, dtype="float16")
    bits = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    values = bits.astype(np.float64)
    reference = np.where(np.isfinite(values), values, 0.0)
    flat = [kernels.upload(a) for a in (reference, np.zeros(1 << 16))]
    draw = DeviceDraw(kernels, op, (kernels.upload(bits),), *flat)
    assert draw.fault(kernels.upload(bits)).startswith(f"{np.count_nonzero(~np.isfinite(values))} of 65536")
    assert kernels.missing(kernels.upload(bits), "float16") == np.count_nonzero(np.isnan(values))


def test_large_operators_are_sampled_on_the_host(kernels: ReferenceKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory or work would be too much: few elements, compared on the device, and NaN looked for everywhere."""
    op = operators.parse('conv2d(n=2, c=6, h=29, w=28, k=4, r=3, s=2, padding=1, dtype="float16")+bias')
    whole = make_draws(op, 1)[0]
    for draw in (device_draws(kernels, op, 1, 1000)[0], None):
        if draw is None:
            monkeypatch.setattr(dd, "MOST_FLOPS", 10.0)
            draw = device_draws(kernels, op, 1, LIMIT)[0]
        assert draw.index is not None and draw.reference.size < op.output.size
        output = as_output(op, whole.reference)
        assert draw.fault(output) == ""
        place = int(draw.index[5])
        output.reshape(-1)[place] += np.float16(9)
        where = tuple(map(int, np.unravel_index(place, op.output.shape)))
        assert f"1 of {draw.reference.size} elements wrong; first at {where}" in draw.fault(output)
        other = next(i for i in range(op.output.size) if i not in set(map(int, draw.index)))
        output.reshape(-1)[other] = np.nan
        assert draw.fault(output) == f"1 of {op.output.size} elements are NaN"


MISTAKES = [
    ("gemm(m=70, n=67, k=19)", "k < DEPTH; ++k", "k < DEPTH - 1; ++k"),
    ("gemm(m=70, n=67, k=19)", "fma(x[i], y[j], sum[i][j])", "static_cast<float>(fma(x[i], y[j], sum[i][j]))"),
    ("gemm(m=70, n=67, k=19)", "fma(fabs(x[i]), fabs(y[j]), size[i][j])", "fma(x[i], fabs(y[j]), size[i][j])"),
    ('gemm(m=70, n=67, k=19, dtype="tf32")', "2.0 * sqrt(spread[i])", "3.0 * sqrt(spread[i])"),
    ('gemm(m=70, n=67, k=19, dtype="int8")', "<const signed char *>", "<const unsigned char *>"),
    ("conv2d(n=1, c=3, h=9, w=9, k=4, r=3, s=3, padding=1)", "v >= 0 && v < limit_v", "v < limit_v"),
    ("max_pool2d(n=1, c=3, h=9, w=9, r=3, s=3, padding=1)", "fmax(value, read) : value", "value : value"),
    ("avg_pool2d(n=1, c=3, h=9, w=9, r=3, s=3)", "value / divisor", "value"),
    ('elementwise(name="gelu", shape=(9, 9))', "1.0 + erf(", "1.0 + tanh("),
    ("gemm(m=9, n=8, k=7)+bias", "i / inner % size", "0"),
    ("gemm(m=9, n=8, k=7)+gelu", "steep * error", "error"),
]


@pytest.mark.parametrize(("text", "before", "after"), thorough_but(MISTAKES, MISTAKES[0], MISTAKES[6]))
def test_planted_mistakes_are_found(
    kernels: ReferenceKernels, monkeypatch: pytest.MonkeyPatch, text: str, before: str, after: str
) -> None:
    """A wrong reference or bound raises and names the setting that does without."""
    planted(monkeypatch, before, after)
    with pytest.raises(ReferenceFault, match=r"the device's reference is wrong \(draw 0 of .*GENSOR_GYM_REFERENCE=host"):
        device_draws(kernels, operators.parse(text), 0, LIMIT)


def test_spots_of_a_large_output(kernels: ReferenceKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements are fetched one by one where the whole array would be too much; what is planted at a corner is named."""
    monkeypatch.setattr(reference_kernels, "_SMALL", 10)
    op = operators.gemm(30, 20, 5)
    draw, here = device_draws(kernels, op, 0, LIMIT)[0], make_draws(op, 0, full_flops=0.0)[0]
    check_spots(draw, here, "all is well")
    draw.reference[-1] = np.nan
    words = r"wrong \(planted\) at 1 of \d+ places: at \(29, 19\) it is nan with accepted error"
    with pytest.raises(ReferenceFault, match=words):
        check_spots(draw, here, "planted")


def test_changed_inputs_and_lost_references(kernels: ReferenceKernels) -> None:
    op = operators.parse('gemm(m=9, n=7, k=5, dtype="int8")')
    draw = device_draws(kernels, op, 0, LIMIT)[0]
    sent = [kernels.upload(np.asarray(a)) for a in draw.inputs]
    assert draw.changed(sent) == ""
    sent[1].reshape(-1)[-1] ^= 1  # within the last bytes, which make no whole word
    assert draw.changed(sent) == "input 1 was modified"
    draw.bound[4] = np.inf
    with pytest.raises(DeviceLost, match="wrote over the reference answers of gemm"):
        draw.changed(sent)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, kernels: ReferenceKernels) -> types.ModuleType:
    """`measure.cuda_device` over a CuPy made of NumPy."""
    return fake_cupy.device_module(monkeypatch, fake_cupy.module.launch)


RELU = operators.elementwise("relu", 64)


def trial_of(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch, does: Callable[..., None]) -> Measurement:
    """A trial of relu, then of what `does` to (x, y, device), judged on the device."""

    def launch(entry: str, arguments: tuple) -> None:
        x, y, _ = arguments
        y[...] = np.maximum(x, 0)
        does(x, y, cache.get(RELU, 0))

    monkeypatch.setattr(fake_cupy.module, "launch", launch)
    device = fake.CudaDevice()
    cache = ExpectationCache(device.draws, device.draws_limit)
    built = Built(Kernel(RELU, "cuda", "sm_90", "", (Launch("entry", block=(64, 1, 1)),), 10), "none.cubin")
    return run_trial(device, cache, TrialRequest(built, 1, 0.0), lambda stage: None)


def test_trials_judged_on_the_device(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same faults in the same words as on the host."""
    good = trial_of(fake, monkeypatch, lambda x, y, draws: None)
    assert good.status is Status.OK and good.seconds == pytest.approx(fake_cupy.Clock.seconds), good.error
    wrong = trial_of(fake, monkeypatch, lambda x, y, draws: y.__setitem__(7, 99.0))
    assert wrong.status is Status.WRONG_ANSWER
    assert "before timing: 1 of 64 elements wrong; first at (7,): np.float32(99.0) for " in wrong.error
    changed = trial_of(fake, monkeypatch, lambda x, y, draws: x.__setitem__(3, 0.0))
    assert changed.error == "before timing: input 0 was modified"

    def beyond(x: np.ndarray, y: np.ndarray, draws: object) -> None:
        np.lib.stride_tricks.as_strided(y, (y.size + 1,))[-1] = 1.0

    assert "outside the buffer of output" in trial_of(fake, monkeypatch, beyond).error
    with pytest.raises(DeviceLost, match="wrote over the reference answers"):
        trial_of(fake, monkeypatch, lambda x, y, draws: draws[1].reference.__setitem__(0, 1e9))


def test_libraries_are_timed_in_each_layout(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison asks for every layout of the device's and reports each under its name; one that is wrong is named."""
    op = operators.conv2d(1, 3, 6, 6, 4, 3, 3)
    device = fake.CudaDevice()
    right = device.draws(op, 0)[0]
    monkeypatch.setattr(fake_cupy.module, "launch", lambda entry, a: a[2].__setitem__(..., right.reference.reshape(a[2].shape)))
    asked = []

    class Library:
        def __init__(self, op: object, inputs: object, kind: str, wrap: object) -> None:
            asked.append((kind, inputs))
            self.kind = kind

        def fault(self, draw: object) -> str:
            return "off" if self.kind == spoilt else ""

        def time(self, calls: int) -> float:
            return 1e-4 * calls

    spoilt = ""
    monkeypatch.setattr("gensor_gym.measure.baselines.torch_cuda.TorchCudaBaseline", Library)
    cache = ExpectationCache(device.draws, device.draws_limit)
    built = Built(Kernel(op, "cuda", "sm_90", "", (Launch("entry", block=(64, 1, 1)),), 10), "none.cubin")
    request = CompareRequest((("ours", built),), 1, 3, torch_threads=1)
    samples = run_comparison(device, cache, request, lambda stage: None)
    assert {name: len(values) for name, values in samples.items()} == {"ours": 3, "torch": 3, "torch.nhwc": 3}
    assert [kind for kind, _ in asked] == ["torch", "torch.nhwc"]
    assert all(inputs is cache.get(op, 0)[0].inputs for _, inputs in asked)
    spoilt = "torch.nhwc"
    with pytest.raises(ValueError, match="torch.nhwc: off"):
        run_comparison(device, cache, request, lambda stage: None)
    assert device.kinds(operators.gemm(32, 16, 16, dtype="int8")) == ("torch", "torch.b_transposed")
    assert device.kinds(operators.gemm(32, 16, 16)) == ("torch",)


@pytest.mark.parametrize(("seconds", "untimed"), [(1e-6, 500), (1e-4, 8), (5e-3, 8), (20e-3, 3), (1.0, 1)])
def test_caches_are_filled_again_before_a_sample(seconds: float, untimed: int) -> None:
    """A candidate finds what the one before left: it is called some times before the calls that count."""
    calls: list[int] = []

    def timer(count: int) -> float:
        calls.append(count)
        return count * seconds

    samples = _interleave({"one": timer}, 3, TimingRules(), 0, 0.0, lambda stage: None)
    timed = calls_per_sample(seconds, TimingRules())
    assert calls[-6:] == [untimed, timed] * 3 and samples["one"] == pytest.approx([seconds] * 3)


def test_the_setting_chooses(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    op, device = operators.gemm(9, 7, 5), fake.CudaDevice()
    assert all(isinstance(draw, DeviceDraw) for draw in device.draws(op, 0))
    monkeypatch.setenv("GENSOR_GYM_REFERENCE", "host")
    draw, here = device.draws(op, 0)[0], make_draws(op, 0)[0]
    output = as_output(op, here.reference)
    assert draw.fault(output) == "" and draw.nbytes == here.nbytes
    output[2, 3] = 5e9
    assert draw.fault(output) == here.fault(np.asarray(output)) != ""
    assert draw.distance(output) == here.distance(np.asarray(output))
    assert draw.changed([*draw.inputs]) == "" and draw.changed([draw.inputs[0], 2 * draw.inputs[1]]) != ""
    bits = fake.tensor_array(np.array([[0x3F80, -1]], np.int16))  # as torch gives bfloat16 away
    assert bits.dtype == np.uint16 and decode(np.asarray(bits), "bfloat16")[0, 0] == 1.0
    monkeypatch.setenv("GENSOR_GYM_REFERENCE", "nowhere")
    with pytest.raises(ValueError, match="GENSOR_GYM_REFERENCE='nowhere': expected one of device, host"):
        device.draws(op, 0)


def test_a_device_that_refuses_is_no_kernels_fault(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails while references are made is told apart from what a kernel does, and nothing falls back by itself."""
    device = fake.CudaDevice()

    def refuse(*_: object) -> None:
        raise error

    error: Exception = fake_cupy.CUDADriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
    monkeypatch.setattr(reference_emulator, "run", refuse)
    with pytest.raises(ReferenceFault, match="cannot be had on the device: CUDA_ERROR_INVALID_VALUE.*=host"):
        device.draws(operators.gemm(9, 7, 5), 0)
    error = fake_cupy.OutOfMemoryError("no room")
    with pytest.raises(ReferenceFault, match="out of GPU memory: no room"):
        device.draws(operators.gemm(9, 7, 5), 0)
    error = fake_cupy.CUDARuntimeError("cudaErrorIllegalAddress")
    with pytest.raises(DeviceLost, match="while reference answers were computed or compared: cudaErrorIllegalAddress"):
        device.draws(operators.gemm(9, 7, 5), 0)

    def no_compiler(*_: object) -> None:
        raise nvrtc.NvrtcError("not installed")

    monkeypatch.setattr(reference_kernels, "compile_text", no_compiler)
    with pytest.raises(ReferenceFault, match=r"reference.cu does not compile: not installed.*=host"):
        fake.CudaDevice().draws(operators.gemm(9, 7, 5), 0)


@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_the_text_compiles(arch: str) -> None:
    """All entries, two blocks of products to a multiprocessor, no warnings."""
    made = reference_kernels.compiled(arch)
    assert all(entry.encode() in made.cubin for entry in ENTRIES)
    assert made.registers <= 255 and made.warnings == ()


@pytest.mark.cuda
@pytest.mark.parametrize("text", ['gemm(m=500, n=300, k=700, dtype="tf32")+bias', *OTHERS[:6], PRODUCTS[28], PRODUCTS[35]])
def test_draws_on_a_device(text: str) -> None:
    pytest.importorskip("cupy")
    from gensor_gym.measure.devices.cuda import CudaDevice

    op = operators.parse(text)
    for there, here in zip(CudaDevice().draws(op, 3), make_draws(op, 3), strict=True):
        import cupy

        assert isinstance(there, DeviceDraw)
        reference, bound = (cupy.asnumpy(a).reshape(op.output.shape) for a in (there.reference, there.bound))
        assert np.allclose(reference, here.reference, rtol=1e-12, atol=1e-12 * np.abs(here.reference).max())
        assert np.allclose(bound, here.bound, rtol=1e-10, atol=0.0)
