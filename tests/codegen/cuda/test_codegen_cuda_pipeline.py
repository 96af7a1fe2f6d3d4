"""Pipelines of CUDA kernels: buffers, asynchronous copies, fragments ahead, swizzle, lanes of a warp."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.cuda.sass import is_available, main_loop
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.measure.emulator.emulator import EmulatedKernels, EmulatorError
from gensor_gym.operators.types import Operator
from tests.codegen.cuda.test_codegen_cuda import check
from tests.measure.emulator.test_emulator import faults
from tests.support.cuda_schedules import make_kernel, make_schedule, random_inputs
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import needs_nvrtc

GEMM = operators.gemm(40, 24, 52)


def gemm_kernel(hw: str = "h200", op: Operator = GEMM, **knobs: int) -> Kernel:
    """Tiles of 16 x 16 x 8, 4 x 4 a thread in two groups, seven steps of which the last is short."""
    return make_kernel(op, make_schedule(op, [4, 4, 1], [16, 16, 8], [2, 1, 1], vector=4, **knobs), hw)


@pytest.mark.parametrize("hw", thorough_but(["h200", "t4"], "h200"))
def test_pipelines_are_right(hw: str) -> None:
    """Numbers of buffers, layouts, fragments ahead or not, unrolled or not; split and shared reductions."""
    kernels = [
        gemm_kernel(hw, stages=stages, shared_layout=(number + stages) % 3, register_buffer=ahead, unroll=unroll)
        for stages in ((1, 2, 3) if hw == "h200" else (1, 2))
        for number, (ahead, unroll) in enumerate(((1, 8), (2, 8), (2, 2)))
    ]
    kernels += [gemm_kernel(hw, stages=2, split_k=4, register_buffer=2)]
    kernels += [gemm_kernel(hw, stages=2, reduce_threads=4), gemm_kernel(hw, stages=2, reduce_threads=64, split_k=2)]
    check(kernels, np.random.default_rng(1))


@pytest.mark.parametrize(
    "pipelines", [[(3, 2, 1)], pytest.param([(2, 1, 0), (2, 2, 2)], marks=pytest.mark.thorough)], ids=["three buffers", "two"]
)
def test_pipelines_of_other_operators_are_right(pipelines: list[tuple[int, int, int]]) -> None:
    """Convolutions whose steps move along several axes, int8, pooling with a pad that is not zero, primes."""
    conv = operators.conv2d(1, 5, 7, 9, 6, 3, 3, padding=1).with_epilogue("bias")
    strided = operators.conv2d(2, 4, 9, 8, 4, 3, 2, stride=2, padding=1)
    pool = operators.max_pool2d(1, 2, 9, 11, 3, 3, 2, 1)
    prime = operators.gemm(17, 13, 29)
    small = operators.gemm(20, 16, 24, dtype="int8")
    batch = operators.batched_gemm(3, 9, 12, 20)
    kernels = []
    for stages, ahead, layout in pipelines:
        knobs = {"stages": stages, "register_buffer": ahead, "shared_layout": layout, "unroll": 4}
        kernels += [
            make_kernel(conv, make_schedule(conv, [1, 2, 1, 3, 1, 1, 1], [1, 6, 4, 9, 2, 1, 3], vector=4, **knobs)),
            make_kernel(conv, make_schedule(conv, [1, 2, 1, 3, 1, 1, 1], [1, 6, 4, 3, 2, 3, 3], vector=4, **knobs)),
            make_kernel(strided, make_schedule(strided, [1, 2, 1, 2, 1, 1, 1], [1, 4, 2, 4, 2, 1, 1], **knobs)),
            make_kernel(pool, make_schedule(pool, [1, 1, 1, 1, 1, 1], [1, 1, 4, 6, 1, 2], **knobs)),
            make_kernel(prime, make_schedule(prime, [3, 4, 1], [9, 8, 5], vector=4, **knobs)),
            make_kernel(small, make_schedule(small, [4, 4, 1], [8, 16, 8], vector=4, **knobs)),
            make_kernel(batch, make_schedule(batch, [1, 1, 4, 1], [1, 3, 12, 4], vector=4, **knobs)),
        ]
    check(kernels, np.random.default_rng(2))


@pytest.mark.parametrize(("hw", "ahead"), thorough_but([("h200", 1), ("h200", 2), ("t4", 1), ("t4", 2)], ("h200", 2)))
def test_a_missing_wait_or_barrier_is_caught(hw: str, ahead: int) -> None:
    """Every wait and every barrier of a pipeline is needed; without one some order of threads goes wrong."""
    inputs = random_inputs(GEMM, np.random.default_rng(3))
    stages = 2 if hw == "t4" else 3
    kernel = gemm_kernel(hw, stages=stages, register_buffer=ahead, unroll=8)
    expected = GEMM.reference(*inputs)
    assert faults(kernel, inputs, expected) == []
    wanted = [r"__syncthreads\(\);"] + ([r"wait_for_copies<\d>\(\);"] if hw == "h200" else [])
    for pattern in wanted:
        places = [m.span() for m in re.finditer(pattern, kernel.source)]
        assert len(places) == ahead  # one in the loop, one before it where fragments are loaded ahead
        for start, end in places:
            damaged = kernel.source[:start] + ";" + kernel.source[end:]
            assert faults(replace(kernel, source=damaged), inputs, expected), pattern


def test_a_wait_for_too_few_copies_is_caught() -> None:
    """One group more left under way than there may be; and copies that nobody waits for."""
    inputs = random_inputs(GEMM, np.random.default_rng(4))
    kernel = gemm_kernel(stages=3)
    late = replace(kernel, source=kernel.source.replace("wait_for_copies<1>();", "wait_for_copies<2>();"))
    assert late.source != kernel.source
    assert faults(late, inputs, GEMM.reference(*inputs))
    never = replace(kernel, source=kernel.source.replace("wait_for_copies<1>();", ""))
    with EmulatedKernels([never]) as program, pytest.raises(EmulatorError, match="copies under way"):
        program.run(0, inputs)


def test_copies_are_as_wide_as_both_sides_allow() -> None:
    """B lies along rows on both sides: 16 bytes. A is transposed on its way: 4 bytes. Odd rows: 4 bytes."""
    source = gemm_kernel(stages=2, shared_layout=1).source
    assert len(re.findall(r"copy_async<4>\(&A_into", source)) == 2  # guarded and not
    assert len(re.findall(r"copy_async<16>\(&B_into", source)) == 2
    odd = operators.gemm(16, 17, 16)
    text = make_kernel(odd, make_schedule(odd, [4, 1, 1], [16, 8, 8], vector=4, stages=2)).source
    assert "copy_async<16>" not in text.partition("#endif")[2]


def test_interior_blocks_copy_without_guards() -> None:
    """A branch on the block picks the copies; operators whose tiles divide have no branch."""
    source = gemm_kernel(stages=2).source
    plain = r"copy_async<4>\(&A_into\[[^\]]*\], &A_at\[[^\]]*\]\);"
    assert re.search(r"if \(A_whole && block_k \+ 7 < 52\) \{\n[^?]*?" + plain, source)
    even = operators.gemm(32, 32, 64)
    assert "_whole" not in gemm_kernel(op=even, stages=2).source
    assert "_inside" not in gemm_kernel(op=even, stages=2).source


def test_buffers_never_outnumber_steps() -> None:
    """A reduction of one step has nothing to overlap; shared memory follows."""
    op = operators.gemm(16, 16, 16)
    one = make_kernel(op, make_schedule(op, [4, 4, 1], [16, 16, 16], stages=4))
    assert one.digest == make_kernel(op, make_schedule(op, [4, 4, 1], [16, 16, 16])).digest
    two = make_kernel(op, make_schedule(op, [4, 4, 1], [16, 16, 8], stages=4))
    assert two.launches[0].shared_bytes == 2 * 4 * (16 * 8 + 8 * 16)


def test_before_ampere_there_are_two_buffers() -> None:
    with pytest.raises(ValueError, match=r"knob stages=3: CUDA code takes \(1, 2\)"):
        gemm_kernel("t4", stages=3)
    assert "cp.async" not in gemm_kernel("t4", stages=2).source


@pytest.mark.parametrize("lane_map", [0, 1])
@pytest.mark.parametrize(("warp_tile", "rows", "columns"), [(1, 4, 8), (2, 8, 4), (3, 2, 16)])
def test_a_warp_covers_its_patch(warp_tile: int, rows: int, columns: int, lane_map: int) -> None:
    """The lines that place threads, evaluated for a block: all different, and every warp a patch."""
    op = operators.gemm(64, 128, 4)
    kernel = make_kernel(op, make_schedule(op, [4, 4, 1], [64, 128, 4], warp_tile=warp_tile, lane_map=lane_map))
    lines = re.findall(r"const int (first_m|first_n) = (.*?);", kernel.source)
    seen = set()
    for thread in range(512):
        values = {"thread": thread, "warp": thread // 32, "lane": thread % 32}
        place = [eval(text.replace(" / ", " // "), {}, values) // 4 for _, text in lines]  # noqa: S307 - our own text
        seen.add(tuple(place))
        if thread % 32 == 0:
            patch = set()
        patch.add(tuple(place))
        if thread % 32 == 31:
            assert len({m for m, _ in patch}) == rows
            assert len({n for _, n in patch}) == columns
        if lane_map and thread == 7:  # the first eight lanes: two rows and four columns, or the other way round
            assert len({m for m, _ in seen}) + len({n for _, n in seen}) == 6
    assert seen == {(m, n) for m in range(16) for n in range(32)}


@pytest.mark.thorough
def test_patches_of_warps_are_right() -> None:
    """Each patch computes the product; where threads do not divide into it, the knob does nothing."""
    op = operators.gemm(40, 72, 12)
    plain = make_schedule(op, [2, 2, 1], [32, 32, 4])
    kernels = [
        make_kernel(op, make_schedule(op, [2, 2, 1], [32, 32, 4], warp_tile=w, lane_map=m, stages=2))
        for w in (1, 2, 3)
        for m in (0, 1)
    ]
    conv = operators.conv2d(2, 3, 8, 16, 4, 3, 3, padding=1)
    kernels.append(make_kernel(conv, make_schedule(conv, [1, 1, 1, 1, 1, 1, 1], [1, 2, 8, 16, 3, 3, 3], warp_tile=1)))
    check(kernels, np.random.default_rng(5))
    odd = make_schedule(op, [2, 2, 1], [12, 32, 4])
    assert make_kernel(op, odd).digest == make_kernel(op, make_schedule(op, [2, 2, 1], [12, 32, 4], warp_tile=2)).digest
    assert make_kernel(op, plain).digest not in {kernel.digest for kernel in kernels}


LARGE = operators.gemm(4096, 4096, 4096)
TARGETS = {
    "128 x 128 x 8, 8 x 8 a thread": ([8, 8, 1], [128, 128, 8], [2, 2, 1], 0.85),
    "256 x 128 x 8, 16 x 8 a thread": ([16, 8, 1], [256, 128, 8], [4, 2, 1], 0.90),
}
GPUS = {"sm_75": "t4", "sm_80": "a100", "sm_86": "rtx3090", "sm_90": "h200"}


@pytest.mark.thorough
@needs_nvrtc
@pytest.mark.skipif(not is_available(), reason="no disassembler: pip install nvidia-cuda-nvdisasm")
@pytest.mark.parametrize("arch", thorough_but(GPUS, "sm_90"))
@pytest.mark.parametrize("which", thorough_but(TARGETS, "256 x 128 x 8, 16 x 8 a thread"))
def test_the_main_loop_multiplies(which: str, arch: str) -> None:
    """No spills, and the share of FFMA that bounds what the CUDA cores can reach, with and without a pipeline."""
    register, block, virtual, share = TARGETS[which]
    for stages, ahead in ((1, 1), (2, 1), (3, 2)):
        stages = min(stages, 2) if arch == "sm_75" else stages
        knobs = {"vector": 4, "unroll": 8, "shared_layout": 1, "stages": stages, "register_buffer": ahead}
        kernel = make_kernel(LARGE, make_schedule(LARGE, register, block, virtual, **knobs), GPUS[arch])
        compiled = nvrtc.compile_cubin(kernel, arch)
        loop = main_loop(compiled.cubin)
        assert compiled.spill_bytes == 0
        assert loop.counts["FFMA"] == 8 * register[0] * register[1]
        assert loop.share("FFMA") >= share, (knobs, loop.counts)
