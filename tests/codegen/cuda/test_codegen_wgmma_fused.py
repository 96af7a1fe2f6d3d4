"""Convolutions with a window of one element by wgmma, as products of operands as they lie: rules, text, answers."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym import ConstructionGraph, operators
from gensor_gym.codegen.cuda.wgmma.fused import with_fused_columns
from gensor_gym.codegen.program import lower
from gensor_gym.graph.matrices.lying import is_laid_out, lies_as_product, wgmma_columns
from gensor_gym.operators.types import Operator
from tests.codegen.cuda.test_codegen_wgmma_convolution import conv, conv_kernel
from tests.support.cuda_schedules import make_schedule
from tests.support.wgmma_kernels import H200, TINY, check_limit, compile_well, faults, legal_convolutions, planted_show, right

CASES = {
    "tiles that are no rows": [
        conv_kernel(conv(3, 72, 12, 14, 72, 1, 1, "bias", "relu", dtype="bfloat16"), [1, 64, 3, 8], [1, 64, 6, 8], stages=2),
        conv_kernel(conv(2, 64, 6, 28, 130, 1, 1, "residual"), [1, 64, 1, 32], [1, 128, 2, 32], stages=3, raster=2),
        conv_kernel(conv(1, 200, 9, 24, 64, 1, 1, "scale", "gelu"), [1, 64, 9, 24], [1, 64, 9, 24], stages=4),
        conv_kernel(conv(2, 136, 4, 10, 57, 1, 1), [1, 64, 8, 16], [1, 64, 8, 16], stages=1),
    ],
    "split, persistent, clusters": [
        conv_kernel(conv(2, 200, 5, 16, 72, 1, 1, "bias", "residual"), [1, 64, 2, 16], [1, 64, 2, 16], stages=2, split_k=2),
        conv_kernel(conv(3, 72, 4, 14, 130, 1, 1, "bias"), [1, 64, 2, 16], [1, 64, 4, 16], TINY, stages=3, persistent=1),
        conv_kernel(conv(2, 136, 6, 12, 192, 1, 1, "residual"), [1, 64, 2, 8], [1, 64, 2, 16], stages=3, cluster=2),
    ],
}

test_products_of_pixels_are_right = right(CASES, "split, persistent, clusters")


def test_nothing_is_laid_out() -> None:
    """One launch, and the maps are of the weights and the image themselves; a split one adds up, and no more."""
    plain, split = CASES["tiles that are no rows"][0], CASES["split, persistent, clusters"][0]
    assert [launch.entry for launch in plain.launches] == ["gg_conv2d"] and plain.workspace_bytes == 0
    assert [launch.entry for launch in split.launches] == ["gg_conv2d", "gg_conv2d_finish"]
    weights, image = plain.maps
    assert (weights.argument, weights.shape) == (1, (72, 72)) and weights.offset == image.offset == 0
    assert (image.argument, image.shape) == (0, (3, 72, 168))


@pytest.mark.parametrize(
    ("op", "lies"),
    [
        (conv(2, 64, 7, 8, 64, 1, 1), True),
        (conv(2, 64, 4, 14, 64, 1, 1, dilation=2), True),  # of one element nothing is dilated
        (conv(2, 64, 14, 14, 64, 1, 1), False),  # 392 bytes from one channel to the next
        (conv(2, 60, 8, 8, 64, 1, 1), False),  # 120 bytes from one output channel to the next
        (conv(2, 64, 8, 8, 64, 1, 1, stride=2), False),
        (conv(2, 64, 8, 8, 64, 1, 1, stride=(2, 1)), False),
        (conv(2, 64, 8, 8, 64, 1, 1, padding=1), False),
        (conv(2, 64, 8, 8, 64, 1, 3), False),
        (conv(2, 64, 8, 8, 64, 3, 3, padding=1), False),  # as many pixels out as in, but of a window
        (conv(2, 128, 8, 8, 128, 1, 1, groups=2), False),
        (operators.gemm(64, 64, 64, dtype="float16"), True),
        (operators.gemm(64, 60, 64, dtype="float16"), False),
        (operators.gemm(64, 60, 64, dtype="tf32"), True),
        (operators.gemm(64, 61, 64, dtype="tf32"), False),
        (operators.gemm(64, 64, 60, dtype="float16"), False),
        (operators.batched_gemm(3, 64, 64, 64, dtype="bfloat16"), True),
        (operators.depthwise_conv2d(1, 64, 8, 8, 1, 1, dtype="float16"), False),
    ],
)
def test_which_operators_lie_as_products(op: Operator, lies: bool) -> None:
    """From axes and accesses; a convolution that does not is laid out."""
    assert lies_as_product(op) == lies
    assert is_laid_out(op) == (op.name == "conv2d" and not lies)


def test_axes_of_columns() -> None:
    """One, those of an image's pixels, or all but m."""
    assert wgmma_columns(operators.batched_gemm(3, 64, 64, 64, dtype="float16")) == (2,)
    assert wgmma_columns(conv(2, 64, 8, 8, 64, 1, 1)) == (2, 3)
    assert wgmma_columns(conv(2, 64, 8, 8, 64, 3, 3)) == (0, 2, 3)
    with pytest.raises(ValueError, match="no product of matrices"):
        wgmma_columns(operators.gemv(64, 64))


def test_fused_axes_reach_the_same_elements() -> None:
    """Every access, the epilogue's too, at every point; tiles are products."""
    op = conv(2, 8, 4, 6, 5, 1, 1, "bias", "residual")
    program = lower(op, make_schedule(op, [1, 5, 2, 3, 4, 1, 1], [1, 5, 4, 3, 8, 1, 1]), H200)
    fused = with_fused_columns(program).operator
    assert fused.extents == (2, 5, 24, 8) and with_fused_columns(program).tiles == ((1, 5, 6, 4), (1, 5, 12, 8))
    accesses, others = (
        [*o.reads, o.write, *(stage.access for stage in o.epilogue if stage.access)] for o in (op, fused)
    )
    for access, other in zip(accesses, others, strict=True):
        assert access.tensor == other.tensor
        for n, k, p, q, c in np.ndindex(2, 5, 4, 6, 8):
            assert np.dot(access.axis_strides(), (n, k, p, q, c, 0, 0)) == np.dot(other.axis_strides(), (n, k, p * 6 + q, c))
    product = operators.gemm(64, 64, 64, dtype="float16")
    program = lower(product, make_schedule(product, [64, 64, 16], [64, 64, 64]), H200)
    assert with_fused_columns(program) is program


DAMAGED = conv_kernel(conv(3, 136, 6, 12, 72, 1, 1, "residual"), [1, 64, 2, 8], [1, 64, 4, 8], stages=2)
FAULTS = {
    "the first image for all": ("step * STEP_C, block_n);", "step * STEP_C, 0);", "wrong"),
    "pixels of the other consumer": ("consumer_pixel * PANEL_BYTES", "0", "wrong"),
    "columns of the other consumer": ("consumer_pixel * REG_PIXEL", "0", "wrong"),
    "channels of the step before": ("block_pixel, step * STEP_C", "block_pixel, (step - (step > 0)) * STEP_C", "wrong"),
    "no end of an image": ("&& out_pixel < 72)", "&& out_pixel < 96)", "wrong|overflow"),
    "a box left out": ("load_box_3d(b_tile, x_map", "if (step != 1) load_box_3d(b_tile, x_map", "deadlock"),
}
QUICK = ("the first image for all", "no end of an image", "a box left out")
test_planted_faults_are_caught = planted_show(FAULTS, *QUICK, seeds=2)


@pytest.mark.thorough
def test_legal_schedules_are_right() -> None:
    """What the rules let pass can be generated, takes what they count, has as many blocks as the model says, and is right."""
    small = conv(2, 72, 6, 12, 192, 1, 1, "bias", "relu")
    assert faults(legal_convolutions(small, 5, np.random.default_rng(3), images=(1,))) == []
    assert len(legal_convolutions(conv(16, 128, 28, 28, 128, 1, 1), 30, np.random.default_rng(4), images=(1,))) == 30


def test_several_images_without_whole_panels_are_illegal() -> None:
    """Pixels of two images are no neighbours where channels lie between them: each has panels of its own."""
    one, two = (([n, 64, 4, 8, 16, 1, 1], [n, 64, 4, 8, 64, 1, 1]) for n in (1, 2))
    check_limit(conv(4, 64, 4, 8, 64, 1, 1), one, two, "32 pixels of each of several images: multiples of 64")


def test_the_model_prices_no_layout() -> None:
    """The launch of a kernel that lays operands out costs more than a product without one; both have the same tiles."""
    lies, laid_out = conv(16, 256, 56, 56, 128, 1, 1), conv(16, 252, 56, 56, 128, 1, 1)
    tiles = [1, 64, 4, 56, 16, 1, 1], [1, 128, 4, 56, 64, 1, 1]
    seconds = []
    for op in (lies, laid_out):
        graph = ConstructionGraph(op, H200, space="extended")
        seconds.append(graph.latency(make_schedule(op, *tiles, tensor_core=2, stages=4)))
    assert seconds[0] < seconds[1] - H200.launch_overhead


MENU = {
    "64x224": conv_kernel(conv(16, 256, 56, 56, 64, 1, 1, "bias"), [1, 64, 4, 56], [1, 64, 8, 56], stages=3, persistent=1),
    "128x128": conv_kernel(conv(16, 64, 56, 56, 256, 1, 1, "residual"), [1, 64, 4, 32], [1, 128, 4, 32], stages=4, cluster=2),
    "128x256": conv_kernel(conv(16, 512, 28, 28, 128, 1, 1, dtype="bfloat16"), [1, 64, 8, 32], [1, 128, 8, 32], stages=4),
    "split": conv_kernel(conv(1, 448, 28, 28, 128, 1, 1), [1, 64, 7, 16], [1, 128, 7, 16], stages=4, split_k=4),
}
"""Tiles of the menu of convolutions; seven steps in four parts among them."""

test_nvrtc_neither_spills_nor_serialises = compile_well(MENU)
