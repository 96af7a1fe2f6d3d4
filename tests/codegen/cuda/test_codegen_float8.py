"""Products of 8-bit floats (e4m3): on CUDA cores, by mma.sync and by wgmma, right at awkward extents; what they compile to."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.codegen.cuda import nvrtc, sass
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.graph.matrices.choices import tensor_core_choices
from gensor_gym.measure.answers.expectation import error_bound, make_draws
from gensor_gym.measure.emulator.emulator import EmulatedKernels
from gensor_gym.operators.inputs import decode, from_bfloat16, from_float8_e4m3fn, to_float8_e4m3fn
from tests.codegen.cuda.test_codegen_bytes import operators_of
from tests.codegen.cuda.test_codegen_mma import check, tensor_kernel
from tests.support.cuda_schedules import make_kernel, make_schedule, random_schedule
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import TINY, compile_well, faults, gemm, legal_kernels, needs_nvrtc, right, wgmma_kernel

KIND = "float8_e4m3fn"
SIZES = {
    "wgmma": [
        wgmma_kernel(gemm(150, 201, 272, KIND, "bias", "relu"), [64, 136], [64, 136], stages=3, raster=2),
        wgmma_kernel(gemm(70, 72, 208, KIND), [64, 64], [64, 64], stages=1),
        wgmma_kernel(operators.batched_gemm(3, 70, 140, 176, dtype=KIND), [64, 64], [64, 64], stages=2, raster=2),
    ],
    "split and cluster": [
        wgmma_kernel(gemm(70, 135, 656, KIND, "relu"), [64, 64], [64, 64], TINY, stages=3, split_k=2, persistent=1),
        wgmma_kernel(gemm(320, 150, 400, KIND, "gelu", "residual"), [64, 80], [128, 160], TINY, stages=2, cluster=2),
    ],
}


def test_numbers_are_those_of_torch() -> None:
    """Every byte, numbers between all neighbours, ties, what is beyond, either sign."""
    torch = pytest.importorskip("torch")
    every = np.arange(256, dtype=np.uint8)
    values = from_float8_e4m3fn(every)
    np.testing.assert_array_equal(values, torch.from_numpy(every).view(torch.float8_e4m3fn).float().numpy())
    ties = (values[1:127] + values[:126]) / 2
    between = [np.nextafter(ties, np.float32(side)) for side in (0, 1e9)]
    rng = np.random.default_rng(0)
    drawn = np.ldexp(rng.standard_normal(20000).astype(np.float32), rng.integers(-14, 7, 20000))
    tried = np.concatenate([values[:127], ties, *between, drawn, np.float32([447, 463, 464])])
    for part in (tried, -tried):
        theirs = torch.from_numpy(part).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
        np.testing.assert_array_equal(to_float8_e4m3fn(part), theirs)
    beyond = to_float8_e4m3fn(np.array([465, 1e30, np.inf, -np.inf], dtype=np.float32))
    assert beyond.tolist() == [0x7E, 0x7E, 0x7E, 0xFE] and np.isnan(from_float8_e4m3fn(to_float8_e4m3fn(np.float32([np.nan]))))


def test_it_is_of_products_alone_and_writes_bfloat16() -> None:
    op = gemm(4, 4, 4, KIND, "bias")
    assert [tensor.dtype for tensor in (*op.inputs, op.output)] == [KIND, KIND, "bfloat16", "bfloat16"]
    assert op.compulsory_bytes == 2 * 16 + 2 * 4 + 2 * 16
    with pytest.raises(ValueError, match="dtype='float8_e4m3fn': expected one of"):
        operators.reduce_sum(4, 4, dtype=KIND)


def test_who_has_it() -> None:
    """mma.sync from sm_89 on, wgmma on sm_90; elsewhere CUDA cores."""
    op = gemm(256, 256, 256, KIND)
    found = {name: tensor_core_choices(op, hardware.get(name)) for name in ("a100", "rtx4090", "h100", "t4")}
    assert found == {"a100": (0,), "rtx4090": (0, 1), "h100": (0, 1, 2), "t4": (0,)}
    h100 = hardware.get("h100")
    assert h100.tensor_rate(KIND, 1) == h100.tensor_rate("float16", 1) < h100.tensor_rate(KIND, 2) / 2


def test_cuda_cores_add_in_float32() -> None:
    """Within the bound of an operator of bfloat16, which knows of no accumulators of 22 bits."""
    op = gemm(37, 41, 300, KIND)
    draw = make_draws(op, 0)[0]
    strict = error_bound(gemm(37, 41, 300), tuple(from_float8_e4m3fn(x) for x in draw.inputs), draw.reference)
    kernel = make_kernel(op, make_schedule(op, [4, 4, 4], [16, 32, 8], stages=2))
    with EmulatedKernels([kernel]) as program:
        out = from_bfloat16(program.run(0, draw.inputs))
    assert (np.abs(out - draw.reference) <= strict + 2.0**-8 * np.abs(draw.reference)).all()


@pytest.mark.thorough
def test_random_schedules_are_right() -> None:
    rng = np.random.default_rng(21)
    check([make_kernel(op, random_schedule(op, rng)) for op in operators_of(KIND)[::2]], seeds=1)


def mma_kernels(hw: str) -> list[Kernel]:
    """One row, primes, a split reduction, a batch, a convolution."""
    return [
        tensor_kernel(f'gemm(1, 8, 7, dtype="{KIND}")+bias+gelu+residual', [16, 8, 32], [16, 8, 32], hw, stages=2),
        tensor_kernel(f'gemm(37, 29, 131, dtype="{KIND}")+bias+relu', [16, 16, 32], [32, 32, 64], hw, stages=3, shared_layout=2),
        tensor_kernel(f'gemm(40, 64, 288, dtype="{KIND}")', [16, 32, 32], [32, 64, 32], hw, stages=2, split_k=4, vector=4),
        tensor_kernel(
            f'batched_gemm(3, 20, 24, 40, dtype="{KIND}")', [2, 16, 8, 32], [2, 16, 24, 64], hw, stages=3, vector=4,
            shared_layout=1, register_buffer=2,
        ),
        tensor_kernel(
            f'conv2d(2, 36, 7, 9, 20, 3, 2, padding=1, dtype="{KIND}")', [1, 16, 1, 8, 32, 1, 1],
            [1, 32, 2, 8, 32, 1, 2], hw, stages=2,
        ),
    ]  # fmt: skip


def test_mma_is_right() -> None:
    check(mma_kernels("rtx4090"), seeds=1)


def window_kernels() -> list[Kernel]:
    """For sm_90, whose mma.sync widens operands: windows that overhang, a stride, a dilation, channels without divisors."""
    return [
        tensor_kernel(f'conv2d({text}, dtype="{KIND}")', warp, block, "h100", **knobs)
        for text, warp, block, knobs in (
            ("1, 35, 9, 16, 20, 3, 3, padding=1", [1, 16, 1, 16, 32, 1, 1], [1, 32, 2, 16, 32, 1, 3],
             {"stages": 3, "shared_layout": 2, "vector": 4}),
            ("2, 36, 7, 9, 20, 3, 2, stride=2, padding=1", [1, 32, 1, 8, 64, 1, 1], [1, 32, 4, 16, 64, 4, 1],
             {"stages": 2, "split_k": 2, "unroll": 4, "shared_layout": 2}),
            ("1, 50, 6, 11, 17, 2, 4, dilation=2, padding=2", [1, 32, 1, 8, 32, 1, 1], [1, 32, 1, 8, 32, 1, 2],
             {"stages": 2, "register_buffer": 2, "shared_layout": 1}),
        )
    ]  # fmt: skip


@pytest.mark.parametrize("number", thorough_but(range(3), 2))
def test_windows_that_are_widened_are_right(number: int) -> None:
    check(window_kernels()[number : number + 1], seeds=1)


test_wgmma_is_right = right(SIZES, "wgmma")


@pytest.mark.thorough
def test_legal_schedules_are_right() -> None:
    rng = np.random.default_rng(8)
    op = operators.batched_gemm(2, 192, 133, 272, dtype=KIND)
    assert faults([*legal_kernels(op, 3, rng), *legal_kernels(op, 2, rng, cluster=2)]) == []


def test_a_step_that_is_left_out_shows() -> None:
    """At the bound that accumulators of 22 bits are given: of 32 products too few in 1,024 most elements say so."""
    op = gemm(64, 64, 1024, KIND)
    draw = make_draws(op, 0)[0]
    a, b = (decode(x, KIND).astype(np.float64) for x in draw.inputs)
    short = a[:, 32:] @ b[32:]
    assert (np.abs(short - draw.reference) > draw.bound).mean() > 0.7


MENU = {
    "128x256": wgmma_kernel(gemm(4096, 4096, 4096, KIND), [64, 256], [128, 256], stages=4, persistent=1, raster=8),
    "64x128": wgmma_kernel(gemm(4096, 4096, 4096, KIND, "bias", "gelu"), [64, 128], [64, 128], stages=5),
    "split": wgmma_kernel(gemm(384, 1024, 4096, KIND), [64, 128], [64, 128], stages=5, split_k=4),
}

test_nvrtc_neither_spills_nor_serialises = compile_well(MENU, "split")


SPILLED = {
    "three blocks": (
        "h100", "2, 64, 14, 14, 64, 3, 3, padding=1", [1, 32, 1, 8, 64, 1, 1], [1, 32, 4, 16, 64, 4, 1],
        {"split_k": 2, "vector": 2, "unroll": 4, "stages": 2, "shared_layout": 2, "raster": 8},
    ),
    "twenty blocks": (
        "h100", "2, 64, 16, 16, 64, 3, 3, padding=1", [1, 32, 1, 16, 32, 1, 1], [1, 32, 1, 16, 32, 1, 1],
        {"split_k": 4, "vector": 4, "unroll": 4, "stages": 2, "shared_layout": 1, "raster": 2},
    ),
    "512 threads": (
        "h100", "16, 128, 28, 28, 128, 3, 3, padding=1", [1, 32, 1, 8, 32, 1, 1], [2, 64, 2, 16, 64, 1, 3],
        {"split_k": 2, "vector": 4, "unroll": 16, "stages": 4, "register_buffer": 2, "shared_layout": 2, "raster": 16},
    ),
    "eight points": (
        "h100", "16, 64, 56, 56, 64, 3, 3, padding=1", [1, 32, 4, 16, 64, 1, 1], [1, 32, 4, 16, 64, 2, 2],
        {"split_k": 2, "vector": 2, "unroll": 2, "stages": 3, "register_buffer": 2, "shared_layout": 2, "raster": 2},
    ),
    "sixteen blocks": (
        "h100", "1, 64, 24, 32, 32, 3, 3, dilation=2, groups=2, padding=2",
        [1, 1, 16, 1, 8, 32, 1, 1], [1, 1, 16, 2, 8, 32, 2, 3],
        {"split_k": 2, "vector": 4, "unroll": 2, "shared_layout": 2, "raster": 16},
    ),
    "sm_89": (
        "rtx4090", "16, 128, 28, 28, 128, 3, 3, padding=1", [1, 16, 1, 8, 32, 1, 1], [2, 48, 2, 8, 128, 2, 1],
        {"split_k": 4, "vector": 4, "unroll": 4, "stages": 2, "shared_layout": 2, "raster": 4},
    ),
}  # fmt: skip
"""Convolutions that spilled: 32 elements of an operand held, a body of as many points as fit, no register to spare."""


@needs_nvrtc
@pytest.mark.parametrize("name", thorough_but(SPILLED, "twenty blocks", "sixteen blocks"))
def test_windows_do_not_spill(name: str) -> None:
    hw, text, warp, block, knobs = SPILLED[name]
    compiled = nvrtc.compile_cubin(tensor_kernel(f'conv2d({text}, dtype="{KIND}")', warp, block, hw, **knobs))
    assert compiled.spill_bytes == 0 and compiled.loss == ""


@pytest.mark.thorough
@needs_nvrtc
@pytest.mark.skipif(not sass.is_available(), reason=f"no disassembler: pip install {sass.PACKAGE}")
@pytest.mark.parametrize(("hw", "operation"), [("rtx4090", "QMMA"), ("h100", "HMMA")])
def test_ada_multiplies_bytes_and_hopper_halves(hw: str, operation: str) -> None:
    """Machine code of one mma.sync: an instruction of its own on sm_89, two of float16 and what unpacks operands on sm_90."""
    text = f'gemm(1024, 1024, 1024, dtype="{KIND}")'
    kernel = tensor_kernel(text, [64, 32, 32], [128, 128, 64], hw, stages=3, vector=4, shared_layout=2)
    compiled = nvrtc.compile_cubin(kernel)
    counts: Counter[str] = sass.main_loop(compiled.cubin).counts
    assert compiled.spill_bytes == 0 and counts[operation] >= 16
    assert (counts["F2FP"] > 0) == (operation == "HMMA")


@pytest.mark.thorough
@needs_nvrtc
@pytest.mark.skipif(not sass.is_available(), reason=f"no disassembler: pip install {sass.PACKAGE}")
def test_the_main_loop_of_wgmma_multiplies() -> None:
    loop = sass.main_loop(nvrtc.compile_cubin(MENU["split"]).cubin)
    assert loop.entry == "gg_gemm" and loop.counts["QGMMA"] == 4
