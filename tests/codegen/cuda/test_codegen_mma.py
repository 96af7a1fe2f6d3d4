"""Products on tensor cores with mma.sync: right in the emulator, taken by NVRTC, shaped as promised."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.cuda import nvrtc, sass
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.measure.answers.expectation import decode, make_draws
from gensor_gym.measure.emulator.emulator import EmulatedKernels, EmulatorError
from tests.support.cuda_schedules import make_kernel, make_schedule
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import needs_nvrtc

DEPTH = {"float16": 16, "bfloat16": 16, "tf32": 8, "tf32x3": 8, "int8": 32}
"""Elements along k of an instruction from sm_80 on."""
SPREAD = thorough_but(DEPTH, "tf32x3")
FEW = thorough_but(DEPTH, "float16")
TURING_DEPTH = {"float16": 8, "int8": 16}
ARCHES = {"sm_75": "t4", "sm_80": "a100", "sm_86": "rtx3090", "sm_90": "h200"}


def tensor_kernel(text: str, warp: list[int], block: list[int], hw: str = "a100", **knobs: int) -> Kernel:
    """A kernel of an operator's text, by warp tile and block tile of its axes."""
    op = operators.parse(text)
    return make_kernel(op, make_schedule(op, warp, block, tensor_core=1, **knobs), hw)


def check(kernels: list[Kernel], seeds: int = 2) -> None:
    """Every output element of every kernel is within its bound, for several inputs and orders of threads."""
    with EmulatedKernels(kernels) as program:
        for number, kernel in enumerate(kernels):
            op = kernel.operator
            for seed, draw in enumerate(make_draws(op, number)[:seeds]):
                fault = draw.fault(decode(program.run(number, draw.inputs, seed), op.output.dtype))
                assert not fault, f"{op}: {fault}\n{kernel.source}"


def stages_by_layout(dtype: str, depth: int, hw: str, stages: tuple[int, ...]) -> list[Kernel]:
    """A product that no tile divides, with every layout of shared memory and number of stages."""
    kernels = []
    for layout in (0, 1, 2):
        for count in stages:
            knobs = {"stages": count, "shared_layout": layout, "register_buffer": 1 + (layout + count) % 2, "vector": 4}
            text = f'gemm(50, 72, {3 * depth + 8}, dtype="{dtype}")'
            kernels.append(tensor_kernel(text, [16, 32, depth], [32, 64, 2 * depth], hw, **knobs))
    return kernels


@pytest.mark.parametrize("dtype", FEW)
def test_layouts_and_stages(dtype: str) -> None:
    check(stages_by_layout(dtype, DEPTH[dtype], "a100", (1, 2, 3, 5)), seeds=1)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", thorough_but(TURING_DEPTH, "int8"))
def test_layouts_and_stages_on_turing(dtype: str) -> None:
    kernels = stages_by_layout(dtype, TURING_DEPTH[dtype], "t4", (1, 2))
    assert not any("copy_async" in kernel.source for kernel in kernels)
    check(kernels, seeds=1)


@pytest.mark.parametrize("dtype", SPREAD)
def test_awkward_extents(dtype: str) -> None:
    """One row, eight columns, primes, a reduction shorter than an instruction, every epilogue, split reductions."""
    d, some = DEPTH[dtype], "+bias+relu+residual"
    every = some if dtype == "int8" else "+scale+gelu+bias+residual"
    check([
        tensor_kernel(f'gemm(1, 8, 7, dtype="{dtype}"){every}', [16, 8, d], [16, 8, d], stages=2),
        tensor_kernel(f'gemm(37, 29, 31, dtype="{dtype}"){some}', [16, 16, d], [32, 32, d], stages=3, shared_layout=2),
        tensor_kernel(f'gemm(19, 8, 127, dtype="{dtype}")+bias', [32, 8, d], [32, 8, 2 * d], vector=4, split_k=2),
        tensor_kernel(
            f'gemm(40, 24, {9 * d}, dtype="{dtype}"){every}', [16, 24, d], [32, 24, d], stages=2, split_k=4, vector=4, raster=2
        ),
        tensor_kernel(
            f'batched_gemm(3, 20, 24, {d + 8}, dtype="{dtype}"){every}', [2, 16, 8, d], [2, 16, 24, 2 * d],
            stages=3, vector=4, shared_layout=1, register_buffer=2, unroll=2,
        ),
        tensor_kernel(
            f'batched_gemm(5, 17, 13, 11, dtype="{dtype}")', [1, 16, 16, d], [4, 16, 16, d], stages=2, shared_layout=2
        ),
    ])  # fmt: skip


@pytest.mark.parametrize("dtype", thorough_but(DEPTH, "tf32x3"))
def test_convolutions(dtype: str) -> None:
    """Padding, stride, dilation, groups, several images and rows; windows whole and in parts; 1x1 as a plain product."""
    d = DEPTH[dtype]
    check([
        tensor_kernel(
            f'conv2d(1, {d + 3}, 9, 9, 20, 3, 3, padding=1, dtype="{dtype}")+bias+relu',
            [1, 16, 1, 8, d, 1, 1], [1, 32, 2, 8, d, 1, 3], stages=2, shared_layout=2,
        ),
        tensor_kernel(
            f'conv2d(2, {d}, 8, 8, 16, 1, 1, dtype="{dtype}")',
            [1, 16, 2, 8, d, 1, 1], [1, 16, 4, 8, d, 1, 1], stages=3, vector=4, shared_layout=2, register_buffer=2,
        ),
        tensor_kernel(
            f'conv2d(2, {2 * d}, 9, 11, 32, 3, 2, stride=2, padding=1, groups=2, dtype="{dtype}")+residual',
            [1, 1, 16, 1, 8, d, 1, 1], [2, 1, 16, 2, 8, d, 2, 2], stages=2, shared_layout=1, register_buffer=2,
        ),
        tensor_kernel(
            f'conv2d(1, {2 * d + 2}, 9, 11, 36, 3, 3, dilation=2, padding=2, groups=2, dtype="{dtype}")',
            [1, 1, 16, 2, 16, d, 1, 1], [1, 2, 32, 2, 16, d, 3, 3], split_k=2,
        ),
    ], seeds=1)  # fmt: skip


@pytest.mark.thorough
def test_convolutions_on_turing() -> None:
    check([
        tensor_kernel(
            f'conv2d(1, 19, 9, 9, 20, 3, 3, padding=1, dtype="{dtype}")+bias',
            [1, 16, 1, 8, d, 1, 1], [1, 32, 2, 8, 16, 1, 3], "t4", stages=2, shared_layout=2,
        )
        for dtype, d in TURING_DEPTH.items()
    ], seeds=1)  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "tf32"])
def test_infinite_inputs_stay_where_they_belong(dtype: str) -> None:
    """A group, a tile that overhangs and a window beyond its end multiply nothing by what the output does not depend on."""
    d = DEPTH[dtype]
    op = operators.conv2d(1, 10, 6, 6, 4, 3, 3, padding=1, groups=2, dtype=dtype)
    kernel = make_kernel(op, make_schedule(op, [1, 1, 16, 1, 8, d, 1, 1], [1, 1, 16, 2, 8, d, 2, 2], tensor_core=1))
    x, w = make_draws(op, 0)[0].inputs
    x = x.copy()
    x[0, 6, 5, 5] = np.inf
    with EmulatedKernels([kernel]) as program:
        out = program.run(0, [x, w])
    assert not np.isfinite(out[0, 2:, 4:, 4:]).any()
    assert np.isfinite(out).sum() == out.size - 2 * 4


def test_split_reduction_is_deterministic() -> None:
    """The order of threads changes no bit."""
    kernel = tensor_kernel('gemm(33, 20, 200, dtype="bfloat16")', [16, 8, 16], [32, 24, 32], stages=3, split_k=4)
    inputs = make_draws(kernel.operator, 3)[0].inputs
    with EmulatedKernels([kernel]) as program:
        assert len({program.run(0, inputs, seed=seed).tobytes() for seed in range(3)}) == 1
    assert kernel.workspace_bytes == 4 * 33 * 20 * 4


def test_three_products_are_as_exact_as_float32() -> None:
    """tf32x3 keeps the bound of float32 where tf32 is hundreds of times outside."""
    text = 'gemm(32, 32, 2048, dtype="{}")'
    draw = make_draws(operators.parse(text.format("float32")), 0)[0]
    kernels = [tensor_kernel(text.format(d), [16, 16, 8], [32, 32, 32], stages=2, vector=4) for d in ("tf32x3", "tf32")]
    with EmulatedKernels(kernels) as program:
        exact, rounded = (program.run(number, draw.inputs) for number in range(2))
    assert draw.fault(exact) == ""
    assert np.abs(rounded - draw.reference).max() > 100 * np.abs(exact - draw.reference).max()


NEEDED = (
    "__syncthreads();", "wait_for_copies<1>();", "commit_copies();",
    "filled = filled + BUFFER == BUFFERS ? 0 : filled + BUFFER;",
)  # fmt: skip


def test_what_the_pipeline_waits_for_is_needed() -> None:
    """Without any one of the barrier, the wait, the groups and the turn of the buffers the answer is wrong."""
    kernel = tensor_kernel('gemm(32, 32, 128, dtype="float16")', [16, 16, 16], [32, 32, 16], stages=3, vector=4)
    draw = make_draws(kernel.operator, 0)[0]
    assert all(missing in kernel.source for missing in NEEDED)
    lacking = [replace(kernel, source=kernel.source.replace(missing, ";")) for missing in NEEDED]
    with EmulatedKernels([kernel, *lacking]) as program:
        assert draw.fault(decode(program.run(0, draw.inputs), "float16")) == ""
        for number, seed in product(range(1, len(NEEDED) + 1), range(3)):
            try:
                assert draw.fault(decode(program.run(number, draw.inputs, seed), "float16")) != "", NEEDED[number - 1]
            except EmulatorError as error:
                assert "asynchronous copies under way" in str(error)


def test_interior_tiles_have_no_guards_and_copies_are_wide() -> None:
    source = tensor_kernel(
        'gemm(1024, 1024, 1024, dtype="bfloat16")', [64, 64, 16], [128, 128, 32], stages=3, vector=4, shared_layout=2
    ).source
    assert len(re.findall(r"copy_async<16>\(.*, true\);", source)) == 4  # A and B, ahead of the loop and in it
    assert "?" not in source[source.index("__global__") :].replace("== BUFFERS ? 0 :", "")
    assert source.count("__syncthreads") == 1


def test_neighbouring_columns_are_stored_together() -> None:
    """32-bit results of interleaved instructions are four columns a store; 16-bit ones two."""
    knobs = {"stages": 2, "vector": 4}
    assert "float4 *>(&C" in tensor_kernel('gemm(64, 64, 64, dtype="tf32")', [32, 32, 8], [64, 64, 16], **knobs).source
    assert "int4 *>(&C" in tensor_kernel('gemm(64, 64, 64, dtype="int8")', [32, 32, 32], [64, 64, 64], **knobs).source
    assert "ushort2 *>(&C" in tensor_kernel('gemm(64, 64, 64, dtype="float16")', [32, 32, 16], [64, 64, 16], **knobs).source


@pytest.mark.parametrize(
    ("text", "warp", "block", "hw", "knobs", "words"),
    [
        ("gemm(64, 64, 64)", [16, 8, 16], [64, 64, 16], "a100", {}, "no product of matrices of float16.* on sm_80"),
        ('gemm(64, 64, 64, dtype="bfloat16")', [16, 8, 16], [64, 64, 16], "t4", {}, "float16, int8 on sm_75"),
        ('gemv(64, 64, dtype="float16")', [16, 16], [64, 16], "a100", {}, "no product of matrices"),
        ('gemm(64, 64, 64, dtype="float16")', [8, 8, 16], [64, 64, 16], "a100", {}, "axis m: register tile 8; .* 16"),
        ('gemm(64, 64, 64, dtype="int8")', [16, 8, 16], [64, 64, 16], "a100", {}, "axis k: register tile 16; .* 32"),
        ('gemm(64, 64, 64, dtype="float16")', [16, 8, 8], [64, 64, 16], "t4", {"stages": 3}, "knob stages=3"),
        ('gemm(64, 64, 64, dtype="float16")', [16, 8, 16], [64, 64, 16], "a100", {"reduce_threads": 2}, "reduce_threads=2"),
    ],
)
def test_refusals_name_what_is_wrong(
    text: str, warp: list[int], block: list[int], hw: str, knobs: dict[str, int], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        tensor_kernel(text, warp, block, hw, **knobs)


def types_of(arch: str) -> dict[str, int]:
    """Data types of an architecture's instructions, with their extent along k."""
    return TURING_DEPTH if arch == "sm_75" else DEPTH


@pytest.mark.thorough
@needs_nvrtc
@pytest.mark.parametrize("arch", thorough_but(ARCHES, "sm_75", "sm_90"))
def test_large_warp_tiles_do_not_spill(arch: str) -> None:
    """16-bit elements, 128 x 128 x 32 by four warps of 64 x 64 and by eight of 64 x 32."""
    stages = (2,) if arch == "sm_75" else (2, 3, 4)
    for columns in (64, 32):
        for count in stages:
            d = types_of(arch)["float16"]
            kernel = tensor_kernel(
                'gemm(4096, 4096, 4096, dtype="float16")', [64, columns, d], [128, 128, 32], ARCHES[arch],
                stages=count, vector=4, shared_layout=2, register_buffer=2, raster=8,
            )  # fmt: skip
            compiled = nvrtc.compile_cubin(kernel)
            assert compiled.spill_bytes == 0
            assert "warning" not in compiled.log
            resident = 2 if columns == 64 else 1  # blocks of four and of eight warps that 65536 registers hold
            assert compiled.registers * kernel.launches[0].block[0] * resident <= 65536


@needs_nvrtc
@pytest.mark.parametrize("arch", thorough_but(ARCHES, "sm_90"))
def test_nvrtc_takes_every_type(arch: str) -> None:
    for dtype, d in types_of(arch).items():
        hw = ARCHES[arch]
        for kernel in (
            tensor_kernel(
                f'gemm(300, 200, 100, dtype="{dtype}")+bias+relu', [32, 32, d], [64, 64, 2 * d], hw, stages=2, split_k=2
            ),
            tensor_kernel(
                f'conv2d(2, 64, 14, 14, 64, 3, 3, padding=1, dtype="{dtype}")',
                [1, 32, 2, 8, d, 1, 1], [1, 64, 4, 16, d, 1, 3], hw, stages=2, shared_layout=2, register_buffer=2,
            ),
        ):  # fmt: skip
            compiled = nvrtc.compile_cubin(kernel)
            assert "warning" not in compiled.log, compiled.log
            assert 0 < compiled.registers <= 255


def test_one_instruction_multiplies_unit_matrices() -> None:
    """A of one row at a time picks that row of B: every element of every fragment stands where it should."""
    op = operators.gemm(16, 8, 16, dtype="float16")
    kernel = make_kernel(op, make_schedule(op, [16, 8, 16], [16, 8, 16], tensor_core=1))
    rows = np.eye(16, dtype=np.float16)
    columns = np.arange(128, dtype=np.float16).reshape(16, 8)
    with EmulatedKernels([kernel]) as program:
        np.testing.assert_array_equal(program.run(0, [rows, columns]), columns)


@pytest.mark.thorough
@pytest.mark.skipif(
    not (nvrtc.is_available() and sass.is_available()), reason=f"pip install {nvrtc.PACKAGES} {sass.PACKAGE}"
)
@pytest.mark.parametrize(("rows", "share"), [(128, 0.49), (256, 0.51)])
def test_half_of_the_main_loop_multiplies(rows: int, share: float) -> None:
    """On sm_80 addresses stand before the loop: besides HMMA there are loads, copies and little else."""
    kernel = tensor_kernel(
        'gemm(4096, 4096, 4096, dtype="float16")', [64, 64, 32], [rows, 128, 32], stages=3, vector=4, shared_layout=2,
        register_buffer=2,
    )  # fmt: skip
    loop = sass.main_loop(nvrtc.compile_cubin(kernel).cubin)
    assert loop.counts["HMMA"] == 64
    assert loop.share() >= share
