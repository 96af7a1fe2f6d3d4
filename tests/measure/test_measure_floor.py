"""The floor of believable times lies at or below the roofline of the fastest unit that an operator's type may use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gensor_gym import hardware, operators
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import cpu_backend
from gensor_gym.measure.stats import floor
from gensor_gym.measure.stats.floor import warm_floor
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.operators.types import Operator

HALVES = ("float16", "bfloat16")
PRODUCTS = ("float32", *HALVES, "float8_e4m3fn", "tf32", "tf32x3", "int8")


def spread() -> list[Operator]:
    """Products that tensor cores may take and some that they may not, sums, maxima and maps; small and large."""
    ops = [operators.gemm(n, n, n, dtype=d) for n in (16, 1024, 8192) for d in PRODUCTS]
    ops += [operators.gemm(16, 4096, 4096, dtype=d).with_epilogue("bias", "gelu") for d in PRODUCTS[:-1]]
    ops += [operators.batched_gemm(192, 128, 128, 64, dtype=d) for d in PRODUCTS]
    ops += [operators.gemv(4096, 4096, dtype=d) for d in ("float32", *HALVES, "int8")]
    for d in PRODUCTS:
        ops.append(operators.conv2d(16, 256, 14, 14, 256, 3, 3, padding=1, dtype=d))
        ops.append(operators.conv2d(1, 3, 30, 30, 20, 3, 3, dtype=d))
    for d in ("float32", *HALVES):
        ops += [operators.depthwise_conv2d(16, 144, 56, 56, 3, 3, dtype=d), operators.avg_pool2d(2, 33, 28, 28, 3, 3, dtype=d)]
        ops += [operators.reduce_sum(4096, 4096, dtype=d), operators.elementwise("gelu", 4096, 4096, dtype=d)]
    return ops


def fastest(op: Operator, hw: Hardware) -> float:
    """Operations per second of the fastest unit of a machine for a type, straight from the machine's figures.

    A type without figures of its own (tf32 on CUDA cores) is float32 there.
    """
    cores = dict(hw.peak)
    return max(cores.get(op.dtype, cores["float32"]), dict(hw.tensor_peak).get(op.dtype, 0.0))


@pytest.mark.parametrize("machine", hardware.names())
def test_the_floor_lies_below_every_roofline(machine: str) -> None:
    """The model's for every operator; for large products also one of the fastest unit, written down here."""
    hw = hardware.get(machine)
    for op in spread():
        floor = warm_floor(op, hw)
        assert 0 < floor <= roofline_floor(op, hw), op
        if op.name in ("gemm", "batched_gemm") and min(op.extents) >= 64:
            slowest = op.compulsory_bytes / min(level.bandwidth for level in hw.memory)
            assert floor <= max(op.flops / fastest(op, hw), slowest), op


def test_times_of_tensor_cores_on_an_h100_are_believable() -> None:
    """Medians of one H100 80GB HBM3 for the best kernels found, in microseconds: none is below the floor."""
    hw = hardware.get("h100")
    for op, microseconds in (
        (operators.gemm(4096, 4096, 4096, dtype="bfloat16"), 174.3),
        (operators.gemm(2048, 2048, 2048, dtype="float16"), 25.1),
        (operators.gemm(4096, 4096, 4096, dtype="tf32"), 339.0),
        (operators.gemm(4096, 4096, 4096, dtype="int8"), 265.0),
        (operators.batched_gemm(192, 128, 128, 64, dtype="bfloat16"), 5.3),
        (operators.conv2d(16, 64, 56, 56, 64, 3, 3, padding=1, dtype="float16"), 16.5),
    ):
        assert warm_floor(op, hw) < microseconds * 1e-6, op


def test_figures_that_were_measured_again_excuse_bytes_and_no_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    hw = hardware.get("zen5_1c")
    host = replace(hw, name="host")
    monkeypatch.setattr(floor, "doubted", lambda: host)
    backend = cpu_backend(TimingRules())
    product, copy = operators.gemm(1024, 1024, 1024), operators.elementwise("relu", 1 << 14, 1 << 14)
    assert 2 * warm_floor(product, hw, 0.0) > warm_floor(product, hw) and warm_floor(copy, hw, 0.0) < 0.1 * warm_floor(copy, hw)
    try:
        for op, share, status in (
            (product, 0.95, Status.OK), (product, 0.85, Status.IMPLAUSIBLE),
            (copy, 0.55, Status.OK), (copy, 0.45, Status.IMPLAUSIBLE),
        ):  # fmt: skip
            found = Measurement(Status.IMPLAUSIBLE, (share * warm_floor(op, host),) * 3, error="below the floor")
            assert backend._judged(found, op, host).status is status, (op, share)
            assert backend._judged(found, op, hw) is found, "figures of other machines stand"
    finally:
        backend.close()
