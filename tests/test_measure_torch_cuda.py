"""Torch as a baseline on a GPU: which answers pass, and its bookkeeping on a stand-in; the numbers on a real device."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.measure.cpu_device import CpuDevice
from gensor_gym.measure.expectation import make_draws
from gensor_gym.measure.torch_cuda import TOLERANCE, distance_fault

OP = operators.gemm(24, 20, 48)
DRAW = make_draws(OP, 0)[0]


def test_rounding_passes_and_tf32_does_not() -> None:
    good = DRAW.reference.astype(np.float32)
    assert distance_fault(good, DRAW, TOLERANCE["float32"]) == ""
    a, b = (array.copy() for array in DRAW.inputs)
    for array in (a, b):  # TF32 keeps ten bits of the mantissa
        array.view(np.uint32)[...] &= np.uint32(0xFFFFE000)
    assert "relative distance" in distance_fault(a @ b, DRAW, TOLERANCE["float32"])


def test_nan_and_shape_fail() -> None:
    bad = DRAW.reference.astype(np.float32)
    bad[3, 4] = np.nan
    assert "relative distance" in distance_fault(bad, DRAW, TOLERANCE["float32"])
    assert "shape (20, 24)" in distance_fault(bad.T, DRAW, TOLERANCE["float32"])


def test_sampled_draws_are_compared_where_they_are_known() -> None:
    sampled = make_draws(OP, 0, full_flops=0.0)[0]
    good = DRAW.reference.astype(np.float32)
    assert sampled.index is not None
    assert distance_fault(good, sampled, TOLERANCE["float32"]) == ""
    assert distance_fault(2 * good, sampled, TOLERANCE["float32"]) != ""


def test_compiled_baseline_is_for_gpus() -> None:
    with pytest.raises(ValueError, match="GPUs only"):
        CpuDevice().baseline(OP, DRAW.inputs, 1, "torch.compile")


@pytest.mark.cuda
@pytest.mark.parametrize("compiled", [False, True])
def test_torch_on_the_device(compiled: bool) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA device")
    from gensor_gym.measure.torch_cuda import TorchCudaBaseline

    baseline = TorchCudaBaseline(OP, DRAW.inputs, compiled)
    assert baseline.fault(DRAW) == ""
    assert 0 < baseline.time(200) < 1.0
