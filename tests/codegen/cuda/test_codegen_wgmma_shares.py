"""Blocks that take equal shares of all steps: right in the emulator, the same in any order of blocks, as NVRTC wants them."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import pytest

from gensor_gym import operators
from gensor_gym.measure.answers.expectation import make_draws
from gensor_gym.measure.emulator.emulator import EmulatedKernels
from tests.support.wgmma_kernels import H200, TINY, compile_well, gemm, planted_show, right, wgmma_kernel

PAIR = replace(TINY, name="pair", units=2)
"""Three clusters of two blocks live at a time."""

CASES = {
    "few tiles": [  # four of seven steps for three blocks: each begins where another ends
        wgmma_kernel(gemm(70, 72, 392, "float16"), [64, 64], [64, 64], TINY, stages=2, persistent=2),
        wgmma_kernel(gemm(60, 72, 712, "float16", "bias", "gelu"), [64, 72], [64, 72], TINY, stages=1, persistent=2),  # one tile
        wgmma_kernel(gemm(60, 40, 320), [64, 40], [64, 40], replace(TINY, units=5), stages=3, persistent=2),  # a step each
    ],
    "consumers": [
        wgmma_kernel(gemm(70, 136, 400, "bfloat16", "bias", "relu"), [64, 64], [128, 64], TINY, stages=3, persistent=2, raster=2),
        wgmma_kernel(gemm(130, 264, 136, "bfloat16", "residual"), [64, 64], [64, 128], TINY, stages=4, persistent=2, raster=4),
        wgmma_kernel(gemm(380, 72, 264), [128, 72], [128, 72], TINY, stages=2, persistent=2),
    ],
    "clusters": [
        wgmma_kernel(gemm(200, 72, 136, "float16"), [64, 64], [64, 64], PAIR, stages=2, persistent=2, cluster=2),
        wgmma_kernel(gemm(300, 264, 136, "bfloat16", "bias"), [64, 64], [64, 128], PAIR, stages=3, persistent=2, cluster=2),
    ],
    "other types": [
        wgmma_kernel(gemm(70, 72, 528, "int8"), [64, 32], [64, 64], TINY, stages=2, persistent=2),
        wgmma_kernel(gemm(70, 72, 520, "tf32"), [64, 32], [64, 64], TINY, stages=2, persistent=2),
        wgmma_kernel(operators.batched_gemm(5, 60, 72, 200, dtype="float16"), [64, 72], [64, 72], TINY, stages=2, persistent=2),
    ],
}

test_products_are_right = right(CASES, "clusters")


def test_the_order_of_blocks_changes_no_bit() -> None:
    """Whoever comes last adds the parts up in the order of the steps."""
    kernel = CASES["few tiles"][0]
    draw = make_draws(kernel.operator, 0)[0]
    with EmulatedKernels([kernel]) as program:
        found = {program.run(0, draw.inputs, seed).tobytes() for seed in range(4)}
    assert len(found) == 1


DAMAGED = CASES["few tiles"][0]
FAULTS = {
    "counters that do not go round": ("last_share - first_share);", "last_share - first_share + 1);", "not zero again"),
    "the first to come finishes": ("0) == last_share - first_share", "0) == 0u", "wrong"),
    "a part left out": ("each = first_share;", "each = first_share + 1;", "wrong"),
    "parts of one place": ("(2 * share + (share == first_share))", "(2 * share)", "wrong"),
    "sums of the tile before": ("B_PANELS | (b >> 4 & 0x3fff), point > 0)", "B_PANELS | (b >> 4 & 0x3fff), true)", "wrong"),
    "a part never counted": ("if (lane == 0) arrived", "if (lane == 0 && share > 0) arrived", "wrong|not zero again"),
}

test_damage_shows = planted_show(FAULTS, "counters that do not go round")


def test_whole_tiles_are_shared_out_as_tiles() -> None:
    """Where tiles are a multiple of the blocks, or have one step, nothing is left of the third value but the loop."""
    even, steps = gemm(150, 72, 136), gemm(70, 72, 64)
    for op, hw in ((even, TINY), (steps, TINY), (even, H200)):
        shared, stays = (wgmma_kernel(op, [64, 64], [64, 64], hw, stages=2, persistent=value) for value in (2, 1))
        assert (shared == stays) == (hw is TINY) or shared.cleared_bytes > 0


def test_a_split_of_its_own_is_refused() -> None:
    """The shares split the reduction already."""
    with pytest.raises(ValueError, match="persistent=2 shares out all steps: split_k is 1"):
        wgmma_kernel(gemm(70, 72, 392), [64, 64], [64, 64], TINY, stages=2, persistent=2, split_k=2)


LARGE = {
    "384x1024x4096": wgmma_kernel(gemm(384, 1024, 4096), [64, 128], [64, 128], stages=5, persistent=2, raster=8),
    "128x256": wgmma_kernel(gemm(4096, 4096, 4096), [64, 256], [128, 256], stages=4, persistent=2, raster=8),
    "cluster": wgmma_kernel(
        gemm(1024, 1024, 4096, "float16", "bias", "relu"), [64, 128], [128, 128], stages=5, persistent=2, cluster=2
    ),
    "three blocks of rows": wgmma_kernel(gemm(1024, 1000, 1024), [192, 128], [192, 128], stages=3, persistent=2),
    "epilogue": wgmma_kernel(
        gemm(1000, 1000, 4096, "bfloat16", "bias", "gelu", "residual"), [64, 256], [128, 256], stages=4, persistent=2
    ),
    "int8": wgmma_kernel(gemm(512, 1000, 8192, "int8"), [64, 128], [128, 128], stages=4, persistent=2),
    "tf32": wgmma_kernel(gemm(512, 1000, 8192, "tf32"), [64, 128], [128, 128], stages=4, persistent=2),
    "fp8": wgmma_kernel(gemm(512, 1000, 8192, "float8_e4m3fn"), [64, 256], [128, 256], stages=4, persistent=2),
}  # fmt: skip
"""Adding parts up reads and writes what wgmma keeps its sums in, behind its wait."""

test_nvrtc_neither_spills_nor_serialises = compile_well(LARGE, "384x1024x4096")


def test_all_of_them_have_tiles_in_parts() -> None:
    assert all(kernel.cleared_bytes > 0 for kernel in (*LARGE.values(), *chain(*CASES.values())))
