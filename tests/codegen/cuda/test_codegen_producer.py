"""Float32 products whose tiles a producer copies: right in the emulator, planted faults show, and fewer instructions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.codegen.build import generate, generate_variant
from gensor_gym.codegen.cuda import nvrtc, sass
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator
from tests.support.cuda_schedules import make_schedule
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import H200, TINY, compile_well, faults, needs_nvrtc, planted_show, right

LARGE = operators.gemm(4096, 4096, 4096)
SHORT = replace(TINY, name="short", shared_per_block=20 * 1024)
"""So little shared memory that rings have few stages."""


def found(op: Operator, tile: list[int], block: list[int], hw: Hardware = H200, **knobs: int) -> Kernel | None:
    """The kernel with a producer of tiles of the last axes; 1 along other axes."""
    batch = [1] * (len(op.axes) - len(block))
    schedule = make_schedule(op, [*batch, *tile], [*batch, *block], **{"vector": 4, "unroll": 4, **knobs})
    return generate_variant(op, schedule, hw, "producer")


def made(op: Operator, tile: list[int], block: list[int], hw: Hardware = H200, **knobs: int) -> Kernel:
    """As `found`, where there is one."""
    kernel = found(op, tile, block, hw, **knobs)
    assert kernel is not None, f"{op}: {tile} {block}"
    return kernel


def gemm(m: int, n: int, k: int, *stages: str) -> Operator:
    """A float32 product with an epilogue."""
    return operators.gemm(m, n, k).with_epilogue(*stages)


CASES = {
    "whole tiles": [
        made(gemm(64, 128, 96), [8, 8, 4], [64, 64, 32], TINY, stages=3),
        made(gemm(128, 64, 32), [4, 4, 1], [32, 32, 32], TINY, stages=2),  # one step
        made(gemm(64, 64, 96), [8, 8, 2], [32, 64, 8], TINY, stages=5),
    ],
    "ragged": [
        made(gemm(75, 100, 68, "bias", "gelu", "residual"), [8, 8, 2], [64, 32, 16], SHORT, raster=2, unroll=2),
        made(gemm(130, 68, 100, "bias", "relu"), [4, 8, 4], [32, 32, 8], TINY, stages=2, unroll=1),
        made(gemm(61, 132, 36, "scale"), [2, 4, 1], [16, 64, 4], TINY, stages=4),
        made(gemm(7, 200, 136), [1, 4, 4], [1, 128, 32], TINY, stages=3),
    ],
    "patches": [
        made(gemm(75, 100, 68), [4, 4, 4], [32, 64, 32], TINY, warp_tile=1, lane_map=1),
        made(gemm(75, 100, 68), [8, 4, 4], [64, 32, 16], TINY, warp_tile=2),
        made(gemm(75, 100, 68, "residual"), [4, 4, 2], [32, 64, 32], TINY, warp_tile=3, lane_map=1),
    ],
    "batched": [
        made(operators.batched_gemm(5, 40, 36, 68), [4, 4, 4], [32, 32, 16], SHORT, stages=1),
        made(operators.batched_gemm(3, 40, 72, 20).with_epilogue("bias", "residual"), [8, 4, 4], [64, 32, 4], TINY),
    ],
    "split": [
        made(gemm(75, 100, 132), [4, 4, 4], [32, 32, 16], TINY, split_k=4, stages=3),
        made(gemm(40, 36, 68, "bias"), [4, 4, 4], [32, 32, 32], TINY, split_k=8),  # empty slices
    ],
    "convolutions": [
        made(operators.conv2d(2, 36, 6, 8, 40, 1, 1).with_epilogue("bias", "relu"), [1, 4, 2, 4, 4, 1, 1],
             [1, 32, 4, 8, 16, 1, 1], TINY),
    ],
}  # fmt: skip

test_products_are_right = right(CASES, "whole tiles", "ragged", "patches", "split")
