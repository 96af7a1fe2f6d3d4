"""Products by wgmma in tiles of several images, and of fewer than 64 rows."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym import ConstructionGraph, operators
from gensor_gym.graph.matrices.choices import tensor_core_choices
from gensor_gym.graph.matrices.lying import images_axis
from gensor_gym.operators.types import Operator
from tests.codegen.cuda.test_codegen_wgmma_convolution import conv, conv_kernel
from tests.support.cuda_schedules import make_schedule
from tests.support.wgmma_kernels import (
    H200,
    TINY,
    check_limit,
    check_planted,
    compile_well,
    faults,
    gemm,
    legal_convolutions,
    planted_show,
    right,
    wgmma_kernel,
)

CASES = {
    "images": [
        conv_kernel(conv(6, 72, 8, 7, 72, 1, 1, "residual"), [2, 64, 8, 8], [4, 64, 8, 8], stages=2),
        conv_kernel(conv(5, 136, 12, 10, 72, 1, 1, "bias"), [2, 64, 8, 8], [2, 64, 8, 16], stages=3, cluster=2),
        conv_kernel(conv(5, 136, 4, 10, 130, 1, 1, "bias"), [2, 64, 4, 16], [4, 128, 4, 16], stages=3),
        conv_kernel(conv(5, 200, 4, 10, 72, 1, 1), [4, 64, 4, 16], [4, 64, 4, 16], TINY, stages=2, persistent=2),
        conv_kernel(conv(5, 200, 8, 7, 72, 1, 1), [2, 64, 8, 8], [2, 64, 8, 8], TINY, stages=2, split_k=2, persistent=1),
        conv_kernel(conv(3, 200, 8, 8, 192, 1, 1), [2, 64, 8, 8], [2, 64, 8, 8], stages=2, cluster=2),
    ],
    "few rows": [
        wgmma_kernel(gemm(40, 72, 392, "bfloat16", "bias"), [16, 72], [16, 72], stages=2, split_k=2),
        wgmma_kernel(gemm(5, 80, 200, "float16", "residual"), [8, 64], [8, 128], stages=3),
        wgmma_kernel(gemm(1, 72, 136, "float16", "bias", "relu"), [1, 64], [1, 64], stages=2),
        wgmma_kernel(gemm(12, 72, 392, "bfloat16"), [16, 64], [16, 64], TINY, stages=2, persistent=2),
        wgmma_kernel(gemm(48, 72, 272, "int8"), [48, 32], [48, 64], stages=2),
        wgmma_kernel(gemm(30, 72, 100, "tf32"), [32, 32], [32, 64], stages=3),
        conv_kernel(conv(2, 72, 9, 14, 20, 3, 3, "bias", padding=1), [1, 16, 2, 16], [1, 16, 4, 16], stages=2),
        conv_kernel(conv(5, 136, 8, 7, 36, 1, 1, "bias"), [2, 32, 8, 8], [2, 32, 8, 8], stages=3),
    ],
}

test_products_are_right = right(CASES, "images")


def test_nothing_is_laid_out() -> None:
    """One launch, no workspace."""
    kernel = CASES["images"][0]
    assert len(kernel.launches) == 1 and kernel.workspace_bytes == 0


@pytest.mark.parametrize(
    ("op", "images"),
    [
        (conv(4, 64, 8, 8, 64, 1, 1), 0),
        (conv(4, 64, 8, 7, 64, 1, 1, dtype="bfloat16"), 0),
        (conv(4, 64, 1, 8, 64, 1, 1), -1),  # eight pixels fill no panel
        (conv(4, 64, 7, 7, 64, 1, 1), -1),  # rows of 98 bytes: laid out
        (conv(4, 64, 8, 8, 64, 1, 1, stride=2), -1),
        (conv(4, 64, 8, 8, 64, 3, 3, padding=1), -1),
        (gemm(64, 72, 64), -1),
    ],
)
def test_which_images_come_together(op: Operator, images: int) -> None:
    """From axes and accesses."""
    assert images_axis(op) == images


@pytest.mark.parametrize(
    ("op", "choices"),
    [
        (gemm(64, 72, 64), (0, 1, 2)),
        (gemm(64, 75, 64), (0, 1)),  # a box of a tensor map begins at multiples of 16 bytes
        (gemm(64, 75, 64, "tf32"), (0, 1, 2)),  # transposed in any case
        (operators.batched_gemm(3, 64, 75, 64, dtype="float16"), (0, 1)),
        (conv(4, 64, 7, 7, 64, 1, 1), (0, 1, 2)),  # laid out
    ],
)
def test_rows_are_whole_sixteen_bytes(op: Operator, choices: tuple[int, ...]) -> None:
    """Of products as they lie."""
    assert tensor_core_choices(op, H200) == choices


def test_a_box_that_begins_anywhere_is_caught() -> None:
    """As a device ends it."""
    fault = "B_map, ready, 0, step", "B_map, ready, 4, step", "no multiple of 16 bytes along a row"
    check_planted(CASES["few rows"][0], {"four elements on": fault}, seeds=1)


DAMAGED = conv_kernel(conv(6, 136, 8, 7, 72, 1, 1, "residual"), [2, 64, 8, 8], [4, 64, 8, 8], stages=2)
FAULTS = {
    "the same image twice": ("block_n + 1);", "block_n);", "wrong"),
    "the other consumer's images": ("const int pixel_n = consumer_column * REG_N", "const int pixel_n = 0 * REG_N", "wrong"),
    "no end of an image": ("&& out_pixel < 56)", "&& out_pixel < 64)", "wrong|overflow"),
}  # fmt: skip

test_planted_faults_are_caught = planted_show(FAULTS, seeds=2)


def test_rows_that_are_not_there_are_not_stored() -> None:
    """Of three tiles of 16 rows each stores its own."""
    check_planted(CASES["few rows"][0], {"all are stored": ("first_m + half * 8 < 16", "true", "wrong")}, seeds=1)


@pytest.mark.thorough
def test_legal_schedules_are_right() -> None:
    """What the rules let pass can be generated, takes what they count, has as many blocks as the model says, and is right."""
    small = [conv(5, 136, 8, 7, 72, 1, 1, "bias"), conv(5, 136, 8, 9, 40, 1, 1, "relu"), conv(3, 72, 4, 16, 130, 1, 1)]
    choices = {"images": (1, 2, 4), "rows": range(16, 129, 16), "persistent": (0, 1, 2)}
    kernels = [kernel for i, op in enumerate(small) for kernel in legal_convolutions(op, 4, np.random.default_rng(i), **choices)]
    assert faults(kernels) == []
    assert len(legal_convolutions(conv(16, 512, 8, 8, 1024, 1, 1), 30, np.random.default_rng(4), **choices)) == 30


def test_several_consumers_of_few_rows_are_refused() -> None:
    """Where a product has under 64 rows a block has one tile along them."""
    one, two = (([16, 64, 16], [rows, 64, 64]) for rows in (16, 32))
    check_limit(gemm(40, 64, 64), one, two, "32 rows of a block: 16, one consumer's")


def test_the_model_counts_rows_that_are_not_there() -> None:
    """16 rows take the tensor cores as long as 64 do; B is read as often, A and the output are smaller."""
    seconds = []
    for rows in (16, 64):
        op = gemm(rows, 4096, 512)
        graph = ConstructionGraph(op, H200, space="extended")
        schedule = make_schedule(op, [rows, 128, 16], [rows, 128, 64], tensor_core=2, stages=4)
        seconds.append(graph.terms(schedule)["arithmetic"])
    assert seconds[0] == seconds[1]


MENU = {
    "16x4096x4096": wgmma_kernel(gemm(16, 4096, 4096), [16, 64], [16, 64], stages=5, persistent=2),
    "16x4096x4096 split": wgmma_kernel(gemm(16, 4096, 4096, "float16", "bias"), [16, 128], [16, 128], stages=5, split_k=4),
    "8x4096x4096": wgmma_kernel(gemm(8, 4096, 4096), [8, 64], [8, 128], stages=4),
    "8x8": conv_kernel(conv(16, 512, 8, 8, 2048, 1, 1, "bias"), [4, 64, 8, 8], [4, 128, 8, 8], stages=4),
    "8x8 cluster": conv_kernel(conv(16, 2048, 8, 8, 512, 1, 1, "bias"), [4, 64, 8, 8], [4, 128, 8, 8], stages=4, cluster=2),
    "8x8 shares": conv_kernel(conv(16, 2048, 8, 8, 512, 1, 1), [2, 64, 8, 8], [4, 128, 8, 8], stages=4, persistent=2),
    "8x8 split": conv_kernel(conv(16, 2048, 8, 8, 512, 1, 1), [4, 64, 8, 8], [4, 128, 8, 8], stages=4, split_k=4),
}
"""What the model chooses for products of few rows and for 1x1 convolutions, and others near it."""

test_nvrtc_neither_spills_nor_serialises = compile_well(MENU, "8x8")
