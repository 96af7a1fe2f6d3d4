"""Convolutions and products whose reduction is shorter than an instruction: zeros fill it up, rows of a window are folded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gensor_gym import ConstructionGraph, hardware, operators
from gensor_gym.codegen import generate
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.cost.gpu.gpu import laid_out_bytes
from gensor_gym.graph.matrices.choices import least_tile, tensor_core_choices
from gensor_gym.graph.matrices.lying import is_folded
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.starts import starts
from gensor_gym.operators.types import Operator
from tests.codegen.cuda.test_codegen_mma import check, tensor_kernel
from tests.codegen.cuda.test_codegen_wgmma_convolution import conv, conv_kernel
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import TINY, check_planted, compile_well, needs_nvrtc, right

FOLDED = {
    "stem": [
        conv_kernel(conv(2, 3, 15, 17, 70, 7, 7, stride=2, padding=3), [1, 64, 2, 16], [2, 64, 2, 16], stages=2),
        conv_kernel(conv(1, 3, 9, 13, 64, 3, 3, "bias", "relu", padding=1, dtype="bfloat16"), [1, 64, 3, 8], [1, 64, 3, 16]),
        conv_kernel(conv(2, 1, 11, 9, 65, 5, 5), [2, 64, 1, 8], [2, 128, 1, 8], stages=3),
    ],
    "windows": [
        conv_kernel(conv(1, 16, 7, 12, 72, 3, 4, "residual", dilation=(2, 1), padding=(2, 1)), [1, 64, 2, 16], [1, 64, 2, 16]),
        conv_kernel(conv(2, 5, 9, 20, 64, 2, 3, dilation=(1, 3), stride=(1, 3)), [1, 64, 2, 8], [1, 64, 4, 8], stages=2),
        conv_kernel(conv(2, 40, 9, 11, 64, 3, 1, stride=2, padding=1), [1, 64, 2, 8], [2, 64, 2, 8], stages=2),
        conv_kernel(conv(1, 13, 8, 9, 64, 1, 1, "bias"), [1, 64, 3, 16], [1, 64, 3, 16]),
    ],
    "together": [
        conv_kernel(conv(1, 3, 12, 18, 130, 5, 4, padding=1), [1, 64, 2, 16], [1, 64, 2, 16], stages=2, cluster=2),
        conv_kernel(conv(2, 7, 10, 12, 72, 6, 3, "bias", padding=1), [1, 64, 2, 16], [1, 64, 2, 16], stages=2, split_k=4),
        conv_kernel(conv(2, 4, 6, 14, 130, 3, 3), [1, 64, 2, 8], [1, 64, 2, 16], TINY, stages=3, persistent=2, raster=2),
    ],
}  # fmt: skip
"""Channels that nothing divides, windows that overhang, strides, dilations; parts of the reduction, clusters, shares."""

test_folded_windows_are_right = right(FOLDED, "stem")


def test_a_row_of_the_window_is_one_step() -> None:
    """7 x 7 x 3 elements are seven steps; the workspace has rows of 21 elements in 48 bytes for every column of the output."""
    kernel = FOLDED["stem"][0]
    assert "step / 49" not in kernel.source and "const int block_r = step;" in kernel.source
    weights, image = kernel.maps
    assert image.shape == (2, 15, 9, 21) and image.every == (1, 2, 1, 1) and image.strides[-1] == 48
    assert weights.shape == (7, 1, 70, 21)


FAULTS = {
    "the next place": ("column * 2 + place - 3", "column * 2 + place - 2", "wrong|heap-buffer-overflow"),
    "outside the image": ("at < 17", "at < 18", "wrong|heap-buffer-overflow"),
    "a channel of weights": ("channel * 49", "channel * 48", "wrong"),
    "rows of weights": ("output * 147 + row * 7", "output * 147 + row", "wrong"),
}


@pytest.mark.thorough
def test_faults_of_the_layout_show() -> None:
    check_planted(FOLDED["stem"][0], FAULTS)


def test_which_windows_are_folded() -> None:
    folded = [conv(1, 3, 30, 30, 64, 7, 7), conv(1, 21, 9, 9, 64, 3, 3), conv(1, 56, 9, 9, 64, 3, 1), conv(1, 13, 9, 9, 64, 1, 1)]
    others = [conv(1, 22, 9, 9, 64, 3, 3), conv(1, 57, 9, 9, 64, 3, 1), conv(1, 3, 9, 9, 64, 1, 3), conv(1, 16, 8, 8, 64, 1, 1),
              conv(1, 3, 30, 30, 64, 7, 7, dtype="int8")]  # fmt: skip
    assert [is_folded(op) for op in folded] == [True] * 4 and [is_folded(op) for op in others] == [False] * 5
    h100, a100 = hardware.get("h100"), hardware.get("a100")
    assert [tensor_core_choices(op, h100) for op in folded] == [(0, 1, 2)] * 4
    assert tensor_core_choices(folded[0], a100) == (0, 1)
    assert [least_tile(folded[0], a, h100) for a in range(7)] == [1, 1, 1, 1, 64, 1, 1]
    assert least_tile(folded[0], 4, a100) == 16 and least_tile(others[-1], 4, a100) == 32


def short_kernels() -> list[Kernel]:
    """By mma.sync: fewer channels, and products with a shorter k, than one instruction takes."""
    cases: tuple[tuple[str, str, list[int], list[int], dict[str, Any]], ...] = (
        ("a100", 'conv2d(2, 3, 9, 13, 18, 3, 3, padding=1, dtype="float16")', [1, 16, 1, 8, 16, 1, 1], [1, 32, 2, 16, 16, 1, 3],
         {"stages": 3, "shared_layout": 2, "vector": 4}),
        ("h100", 'conv2d(1, 3, 11, 15, 20, 5, 5, stride=2, padding=2, dtype="int8")', [1, 16, 1, 8, 32, 1, 1],
         [1, 32, 2, 8, 32, 5, 1], {"stages": 2, "split_k": 2}),
        ("a100", 'gemm(m=40, n=50, k=5, dtype="bfloat16")', [16, 16, 16], [32, 32, 16], {"stages": 2, "vector": 4}),
        ("t4", 'gemm(m=33, n=24, k=3, dtype="float16")', [16, 8, 8], [16, 16, 8], {"shared_layout": 1}),
        ("h100", 'batched_gemm(b=2, m=20, n=17, k=9, dtype="float8_e4m3fn")', [1, 16, 8, 32], [1, 32, 16, 32], {"stages": 2}),
        ("a100", 'gemm(m=40, n=50, k=3, dtype="tf32")', [16, 16, 8], [32, 32, 8], {"stages": 2, "vector": 4}),
    )  # fmt: skip
    return [tensor_kernel(text, warp, block, hw, **knobs) for hw, text, warp, block, knobs in cases]


@pytest.mark.parametrize("number", thorough_but(range(6), 0))
def test_short_reductions_are_right(number: int) -> None:
    check(short_kernels()[number : number + 1], seeds=1)


def test_walks_begin_on_tensor_cores() -> None:
    """Of the model's starts of a network's first layer one is by mma.sync and some by wgmma, and what is drawn near is legal."""
    graph = ConstructionGraph(conv(16, 3, 224, 224, 64, 7, 7, stride=2, padding=3), "h100", "extended")
    kinds = [Schedule(row) for row in starts(graph.tables, graph.initial().row)]
    assert {kind.knob("tensor_core") for kind in kinds} == {0, 1, 2}
    assert all(graph.is_legal(kind) for kind in kinds)
    assert graph.latency(kinds[-1]) < graph.latency(kinds[0])


def bytes_of(op: Operator, read: int) -> float:
    """What laying a read out moves, by the model of an H100."""
    return float(laid_out_bytes(read, ConstructionGraph(op, "h100", "extended").tables.ints))


def test_laying_out_moves_what_is_met() -> None:
    """A stride over windows of one element writes a quarter, reads half; padding keeps all, folding writes rows of 48 bytes."""
    image = 2 * 72 * 8 * 14 * 2
    assert bytes_of(conv(2, 72, 8, 14, 64, 1, 1, stride=2), 0) == image / 4 + image / 2
    assert bytes_of(conv(2, 72, 8, 14, 64, 1, 1, stride=2), 1) == 2 * 72 * 64 * 2
    assert bytes_of(conv(2, 72, 8, 14, 64, 1, 1, stride=2, padding=1), 0) == 2 * image
    assert bytes_of(conv(2, 72, 8, 14, 64, 3, 3), 0) == 2 * image
    assert bytes_of(conv(2, 3, 15, 17, 70, 7, 7, stride=2, padding=3), 0) == 2 * 3 * 15 * 17 * 2 + 2 * 15 * 9 * 48


def stem(text: str, tile: list[int], block: list[int], **knobs: int) -> Kernel:
    """A first layer of a network, by wgmma."""
    op = operators.parse(f'conv2d({text}, dtype="float16")')
    return conv_kernel(op, tile, block, hardware.get("h100"), **knobs)


MENU = {
    "7x7": stem("n=16, c=3, h=224, w=224, k=64, r=7, s=7, stride=2, padding=3", [1, 64, 2, 112], [1, 64, 4, 112], stages=3),
    "3x3": stem("n=16, c=3, h=224, w=224, k=64, r=3, s=3, padding=1", [1, 64, 1, 224], [1, 64, 2, 224], stages=3, persistent=1),
    "16 channels": stem("n=16, c=16, h=112, w=112, k=64, r=3, s=3, padding=1", [1, 64, 2, 112], [1, 64, 4, 112], stages=3),
    "split": stem("n=1, c=3, h=56, w=56, k=128, r=11, s=11, stride=4, padding=2", [1, 64, 1, 16], [1, 64, 1, 16], split_k=2),
}  # fmt: skip

test_folded_kernels_compile_well = compile_well(MENU, "7x7")


@needs_nvrtc
@pytest.mark.thorough
@pytest.mark.parametrize("machine", ["a100", "rtx3090", "h100"])
def test_drawn_first_layers_do_not_spill(machine: str) -> None:
    graph = ConstructionGraph(conv(16, 3, 224, 224, 64, 7, 7, stride=2, padding=3), machine, "extended")
    kinds = [Schedule(row) for row in starts(graph.tables, graph.initial().row)]
    rng = np.random.default_rng(3)
    newest = max(kind.knob("tensor_core") for kind in kinds)
    drawn = [graph.random_schedule(rng, 24, kind) for kind in kinds if kind.knob("tensor_core") == newest for _ in range(4)]
    lost = [nvrtc.compile_cubin(generate(graph.operator, schedule, machine)).loss for schedule in drawn]
    assert len(lost) >= 4 and not any(lost)
