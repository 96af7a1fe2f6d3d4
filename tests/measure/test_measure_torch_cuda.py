"""Torch as a baseline on a GPU: which answers pass, and its bookkeeping on a stand-in; the numbers on a real device."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.measure.answers.expectation import make_draws
from gensor_gym.measure.baselines.torch import tensors_of, torch_function
from gensor_gym.measure.baselines.torch_cuda import TOLERANCE, check_bytes, distance_fault, laid_out, layouts
from gensor_gym.measure.devices.cpu import CpuDevice

OP = operators.gemm(24, 20, 48)
DRAW = make_draws(OP, 0)[0]
SHAPE = OP.output.shape


def test_rounding_passes_and_tf32_does_not() -> None:
    good = DRAW.reference.astype(np.float32)
    assert distance_fault(good, SHAPE, DRAW, TOLERANCE["float32"]) == ""
    a, b = (array.copy() for array in DRAW.inputs)
    for array in (a, b):  # TF32 keeps ten bits of the mantissa
        array.view(np.uint32)[...] &= np.uint32(0xFFFFE000)
    assert "relative distance" in distance_fault(a @ b, SHAPE, DRAW, TOLERANCE["float32"])


def test_nan_and_shape_fail() -> None:
    bad = DRAW.reference.astype(np.float32)
    bad[3, 4] = np.nan
    assert "relative distance" in distance_fault(bad, SHAPE, DRAW, TOLERANCE["float32"])
    assert "shape (20, 24)" in distance_fault(bad.T, SHAPE, DRAW, TOLERANCE["float32"])


def test_sampled_draws_are_compared_where_they_are_known() -> None:
    sampled = make_draws(OP, 0, full_flops=0.0)[0]
    good = DRAW.reference.astype(np.float32)
    assert sampled.index is not None
    assert distance_fault(good, SHAPE, sampled, TOLERANCE["float32"]) == ""
    assert distance_fault(2 * good, SHAPE, sampled, TOLERANCE["float32"]) != ""


@pytest.mark.parametrize("kind", ["torch.compile", "torch.nhwc", "torch.b_transposed"])
def test_baselines_for_gpus(kind: str) -> None:
    with pytest.raises(ValueError, match=f"{kind} is a baseline on GPUs only"):
        CpuDevice().baseline(OP, DRAW, 1, kind)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("conv2d(n=2, c=6, h=9, w=8, k=4, r=3, s=2, stride=2, padding=1, groups=2)+bias+residual+relu", "torch.nhwc"),
        ("depthwise_conv2d(n=2, c=5, h=9, w=9, r=3, s=3, padding=1)+scale", "torch.nhwc"),
        ('gemm(m=24, n=16, k=32, dtype="int8")+bias', "torch.b_transposed"),
        ('gemm(m=32, n=16, k=48, dtype="float8_e4m3fn")+bias', "torch.b_transposed"),
    ],
)
def test_layouts_change_memory_and_no_value(text: str, kind: str) -> None:
    """The same call on the same values; the elements lie in another order, and the result is right."""
    torch = pytest.importorskip("torch")
    op = operators.parse(text)
    draw = make_draws(op, 0)[0]
    plain = tensors_of(op, draw.inputs)
    other = laid_out(plain, kind)
    assert all(torch.equal(a.float(), b.float()) for a, b in zip(plain, other, strict=True))
    moved = [i for i, (a, b) in enumerate(zip(plain, other, strict=True)) if a.stride() != b.stride()]
    images = [i for i, x in enumerate(plain) if x.dim() == 4 and x.shape[1] > 1]  # one channel: both layouts are the same
    assert moved == (images if kind == "torch.nhwc" else [1])
    assert kind in layouts(op)
    result = torch_function(op, other)()
    assert kind != "torch.nhwc" or result.is_contiguous(memory_format=torch.channels_last)
    assert distance_fault(result.contiguous().float().numpy(), op.output.shape, draw, TOLERANCE[op.dtype]) == ""


def test_int8_products_that_torch_has_on_no_gpu() -> None:
    for sizes in ((16, 16, 16), (32, 12, 16), (32, 16, 20)):
        with pytest.raises(ValueError, match="torch._int_mm takes m above 16, n and k in multiples of 8"):
            check_bytes(operators.gemm(*sizes, dtype="int8"))
    check_bytes(operators.gemm(32, 16, 24, dtype="int8"))
    check_bytes(operators.gemm(3, 3, 3))
    with pytest.raises(ValueError, match="torch._scaled_mm takes n and k in multiples of 16"):
        check_bytes(operators.gemm(32, 16, 24, dtype="float8_e4m3fn"))


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["torch", "torch.compile"])
def test_torch_on_the_device(kind: str) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA device")
    from gensor_gym.measure.baselines.torch_cuda import TorchCudaBaseline

    baseline = TorchCudaBaseline(OP, DRAW.inputs, kind)
    assert baseline.fault(DRAW) == ""
    assert 0 < baseline.time(200) < 1.0


@pytest.mark.cuda
@pytest.mark.parametrize(
    "text",
    [
        'conv2d(n=2, c=16, h=9, w=8, k=8, r=3, s=3, padding=1, dtype="bfloat16")+bias+relu',
        'gemm(m=64, n=64, k=64, dtype="int8")', "gemm(m=70, n=60, k=50)+bias",
    ],
)  # fmt: skip
def test_every_layout_on_the_device(text: str) -> None:
    """Inputs and results stay on the device, and each layout gives the right answer."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA device")
    pytest.importorskip("cupy")
    from gensor_gym.measure.devices.cuda import CudaDevice

    op, device = operators.parse(text), CudaDevice()
    draw = device.draws(op, 0)[0]
    for kind in device.kinds(op):
        baseline = device.baseline(op, draw, 1, kind)
        assert baseline.fault(draw) == "", kind
        assert baseline.time(5) > 0.0
