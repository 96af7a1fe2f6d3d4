"""Convolutions by wgmma that read and write channels last in place: right in the emulator, and planted wrong orders show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.codegen import generate
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.matrices.choices import tensor_core_choices
from gensor_gym.graph.matrices.lying import moved_reads
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.starts import starts
from gensor_gym.operators.types import Operator
from tests.codegen.cuda.test_codegen_wgmma_convolution import conv, conv_kernel
from tests.support.wgmma_kernels import (
    TINY,
    compile_well,
    faults,
    legal_convolutions,
    legal_kernels,
    planted_show,
    right,
    wgmma_kernel,
)

IMAGE, WEIGHTS, RESULT = {"image": "nhwc"}, {"weights": "rskc"}, {"result": "nhwc"}
ALL = IMAGE | WEIGHTS | RESULT
WIDE, BRAIN = {"padding": 1}, {"dtype": "bfloat16"}



def rows(m: int, n: int, k: int, dtype: str, *stages: str) -> Operator:
    """A product whose B is [n, k] in memory."""
    return operators.gemm(m, n, k, dtype, weights="nk").with_epilogue(*stages)


CASES = {
    "in place": [
        conv_kernel(conv(1, 64, 9, 13, 72, 3, 3, **WIDE, **ALL), [1, 64, 2, 16], [1, 64, 2, 16], stages=2),
        conv_kernel(
            conv(2, 64, 9, 13, 72, 3, 3, "bias", "relu", "residual", stride=2, **WIDE, **ALL, **BRAIN),
            [1, 64, 2, 8], [2, 128, 2, 8], stages=2,
        ),
        conv_kernel(conv(1, 72, 9, 13, 72, 1, 1, "scale", stride=2, **ALL), [1, 64, 2, 8], [1, 64, 2, 8], cluster=2),
        conv_kernel(conv(2, 64, 8, 8, 72, 3, 3, "bias", **WIDE, **IMAGE, **WEIGHTS), [1, 64, 2, 8], [1, 64, 2, 8], stages=2),
        conv_kernel(conv(2, 32, 8, 8, 3, 3, 3, "bias", "residual", **WIDE, **ALL), [1, 4, 2, 8], [1, 4, 2, 8], stages=2),
    ],
    "one moved": [
        conv_kernel(conv(1, 72, 9, 13, 66, 3, 3, "bias", **WIDE, **IMAGE, **RESULT), [1, 64, 2, 16], [1, 64, 2, 16], stages=2),
        conv_kernel(conv(1, 72, 9, 13, 65, 3, 3, **WIDE, **WEIGHTS, **RESULT), [1, 64, 2, 8], [1, 64, 2, 8], split_k=2),
        conv_kernel(conv(1, 60, 9, 13, 72, 3, 3, "gelu", **WIDE, **RESULT), [1, 64, 2, 16], [1, 64, 2, 16], stages=2),
    ],
    "split": [
        conv_kernel(conv(1, 128, 9, 13, 72, 3, 3, "bias", "gelu", **WIDE, **ALL), [1, 64, 2, 16], [1, 64, 2, 16], split_k=4),
        conv_kernel(conv(1, 128, 9, 13, 72, 3, 3, "bias", **WIDE, **ALL), [1, 64, 2, 16], [1, 64, 2, 16], TINY, persistent=2),
    ],
    "from channels first": [
        conv_kernel(conv(2, 64, 8, 8, 48, 1, 1, "bias", "relu", **RESULT), [1, 48, 8, 8], [1, 48, 8, 8], stages=2),
        conv_kernel(conv(2, 64, 8, 8, 6, 1, 1, "bias", "residual", **RESULT), [1, 8, 8, 8], [1, 8, 8, 8], stages=2),
        conv_kernel(conv(1, 3, 32, 32, 64, 7, 7, "bias", stride=2, padding=3, **RESULT), [1, 64, 2, 16], [1, 64, 2, 16]),
    ],
    "other types": [
        conv_kernel(conv(1, 128, 8, 8, 72, 3, 3, "bias", dtype="int8", **WIDE, **ALL), [1, 64, 2, 8], [1, 64, 2, 8], stages=2),
        conv_kernel(conv(1, 36, 8, 8, 72, 1, 1, dtype="tf32", **ALL), [1, 64, 2, 8], [1, 64, 2, 8], stages=2),
        conv_kernel(conv(1, 128, 8, 8, 68, 3, 1, "relu", dtype="float8_e4m3fn", **ALL), [1, 64, 2, 8], [1, 64, 2, 8], split_k=2),
    ],
    "rows of weights": [
        wgmma_kernel(rows(72, 40, 208, "bfloat16", "bias"), [64, 40], [128, 80], stages=2),
        wgmma_kernel(rows(72, 88, 136, "float16", "residual"), [64, 88], [64, 88], stages=2, split_k=2),
        wgmma_kernel(rows(130, 72, 100, "tf32", "relu"), [64, 72], [64, 144], stages=3, cluster=2),
        wgmma_kernel(rows(100, 48, 272, "int8"), [64, 48], [64, 48], TINY, stages=2, persistent=2),
        wgmma_kernel(rows(72, 40, 208, "float8_e4m3fn"), [64, 40], [64, 40], stages=2),
    ],
}  # fmt: skip

test_kernels_are_right = right(CASES, "in place", "from channels first", "rows of weights")


def test_what_lies_in_rows_of_channels_is_read_in_place() -> None:
    """No first kernel and no workspace, and maps are of arguments. A first kernel for one operand leaves the other alone."""
    first = CASES["in place"][0]
    assert [launch.entry for launch in first.launches] == ["gg_conv2d"] and not first.workspace_bytes
    assert [(one.argument, one.offset) for one in first.maps] == [(1, 0), (0, 0)]
    weights, image = (case.launches[0] for case in CASES["one moved"][:2])
    both = CASES["one moved"][2].launches[0]
    assert all(one.entry == "gg_conv2d_layout" for one in (weights, image, both))
    assert [one.argument for one in CASES["one moved"][0].maps] == [4, 0]
    assert [one.argument for one in CASES["one moved"][1].maps] == [1, 3]
    products = CASES["rows of weights"]
    assert all(kernel.launches[0].entry == "gg_gemm" and kernel.maps[1].argument == 1 for kernel in products)


@pytest.mark.parametrize(
    ("channels", "orders", "moved", "cores"),
    [
        (64, ALL, (), (0, 1, 2)), (64, IMAGE, (1,), (0, 1, 2)), (64, WEIGHTS, (0,), (0, 1, 2)), (64, RESULT, (0, 1), (0, 1, 2)),
        (60, ALL, (), (0, 1)), (24, ALL, (), (0, 1)), (16, RESULT, (0, 1), (0, 1, 2)),
    ],
)  # fmt: skip
def test_rows_in_place_are_whole_units(
    channels: int, orders: dict[str, str], moved: tuple[int, ...], cores: tuple[int, ...]
) -> None:
    """Of 16 bytes, and of half a step: only a kernel that moves an image adds zeros, or makes channels of a window's row."""
    op = conv(1, channels, 8, 8, 64, 3, 3, padding=1, **orders)
    assert moved_reads(op) == moved and tensor_core_choices(op, hardware.get("h100")) == cores


def test_programs_of_every_kind_are_right() -> None:
    """CUDA cores and mma.sync read and write every order, too."""
    kernels = []
    for orders in (ALL, IMAGE, WEIGHTS | RESULT):
        op = conv(2, 32, 7, 6, 34, 3, 2, "bias", "relu", "residual", stride=(2, 1), padding=1, **BRAIN, **orders)
        graph = ConstructionGraph(op, "a100", "extended")
        kernels += [generate(op, Schedule(np.array(row)), "a100") for row in starts(graph.tables, graph.initial().row)]
    assert len(kernels) >= 6 and faults(kernels) == []


DAMAGED = conv_kernel(conv(2, 64, 6, 14, 72, 3, 3, "residual", **WIDE, **ALL, **BRAIN), [1, 64, 2, 8], [1, 64, 4, 8], stages=2)
FAULTS = {
    "half of the rows not turned": ("turn_tile(sums[4], sums[5]);", "", "wrong"),
    "halves of a warp exchanged": ("0, 0, pairs[2], pairs[3]}", "0, 0, pairs[0], pairs[1]}", "wrong"),
    "a lane's column": ("lane / 4;", "lane % 4 * 2;", "wrong|overflow"),
    "an output that believes nchw": (
        "y[out_n * 6048 + out_p * 1008 + out_q * 72 + out_k]", "y[out_n * 6048 + out_k * 84 + out_p * 14 + out_q]",
        "wrong|misaligned|overflow",
    ),
}

QUICK = ("half of the rows not turned",)
test_planted_faults_are_caught = planted_show(FAULTS, *QUICK, seeds=2)


def test_maps_that_believe_another_order_are_caught() -> None:
    """The image as [n, c, h, w], the weights as [s, r, k, c]: the same number of elements in wrong places."""
    weights, image = DAMAGED.maps
    n, h, w, c = image.shape
    stale = replace(image, strides=(h * w * c * 2, c * 2, h * c * 2))
    r, s, k, _ = weights.shape
    turned = replace(weights, strides=(k * c * 2, r * k * c * 2, c * 2))
    for maps in ((weights, stale), (turned, image)):
        assert "wrong" in faults([replace(DAMAGED, maps=maps)])[0]


@pytest.mark.thorough
@pytest.mark.as_shipped
def test_legal_schedules_are_right() -> None:
    """What the rules let pass can be generated, takes what they count, and is right."""
    small = conv(2, 72, 7, 14, 192, 3, 3, "bias", "relu", padding=1, stride=(1, 2), **ALL)
    rng, product = np.random.default_rng(3), rows(136, 72, 208, "bfloat16", "bias")
    assert faults([*legal_convolutions(small, 3, rng, persistent=(0, 1, 2)), *legal_kernels(product, 3, rng)]) == []


MENU = {
    "3x3": conv_kernel(
        conv(16, 256, 56, 56, 256, 3, 3, "bias", "residual", "relu", **WIDE, **ALL, **BRAIN), [1, 64, 4, 56], [1, 128, 4, 56],
        stages=4, persistent=1, raster=8, cluster=2,
    ),
    "shares": conv_kernel(
        conv(1, 512, 7, 7, 512, 3, 3, "bias", "relu", **WIDE, **ALL, **BRAIN), [1, 64, 7, 8], [1, 128, 7, 8],
        stages=4, persistent=2,
    ),
    "1x1": conv_kernel(conv(16, 256, 56, 56, 64, 1, 1, "bias", **RESULT), [1, 64, 4, 56], [1, 64, 4, 56], stages=4),
}  # fmt: skip

test_nvrtc_neither_spills_nor_serialises = compile_well(MENU, "shares")
