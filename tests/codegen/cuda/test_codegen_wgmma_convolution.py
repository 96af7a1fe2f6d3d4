"""Convolutions by wgmma: right under sanitizers in the emulator at awkward extents, and as NVRTC wants them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.codegen.cuda import nvrtc, sass
from gensor_gym.codegen.cuda.codegen import generate_cuda
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import lower
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator
from tests.support.cuda_schedules import make_schedule
from tests.support.wgmma_kernels import (
    DEPTHS,
    H200,
    TINY,
    compile_well,
    faults,
    legal_convolutions,
    needs_nvrtc,
    planted_show,
    right,
)


def conv(n: int, c: int, h: int, w: int, k: int, r: int, s: int, *stages: str, **more: Any) -> Operator:
    """A 16-bit convolution with an epilogue, float16 where nothing else is said."""
    return operators.conv2d(n, c, h, w, k, r, s, **{"dtype": "float16", **more}).with_epilogue(*stages)


def conv_kernel(op: Operator, tile: list[int], block: list[int], hw: Hardware = H200, **knobs: int) -> Kernel:
    """The kernel of a consumer's tile and a block tile of n, k, p, q; 128 bytes of channels at one element of a window a step."""
    chunk, step = DEPTHS[op.dtype]
    schedule = make_schedule(op, [*tile, chunk, 1, 1], [*block, step, 1, 1], tensor_core=2, **knobs)
    return generate_cuda(lower(op, schedule, hw))


CASES = {
    "padding": [
        conv_kernel(conv(1, 60, 9, 13, 72, 3, 3, padding=1), [1, 64, 2, 16], [1, 64, 2, 16], stages=2),
        conv_kernel(conv(2, 57, 10, 12, 130, 3, 1, "bias", "gelu", padding=(1, 0)), [1, 128, 3, 16], [2, 128, 3, 16]),
        conv_kernel(conv(1, 130, 6, 13, 64, 1, 3, "relu", dtype="bfloat16"), [1, 64, 1, 8], [1, 64, 3, 8], stages=4),
        conv_kernel(conv(5, 64, 7, 7, 64, 3, 3, padding=1, dtype="bfloat16"), [3, 64, 7, 8], [3, 64, 7, 8], stages=3),
    ],
    "strides": [
        conv_kernel(conv(1, 64, 11, 20, 72, 3, 3, "residual", stride=(2, 1), dilation=(1, 2)), [1, 64, 3, 16], [1, 64, 3, 16]),
        conv_kernel(
            conv(2, 68, 9, 13, 200, 3, 3, "bias", "relu", "residual", dtype="bfloat16", padding=1, stride=2),
            [1, 64, 1, 8], [2, 64, 2, 8], stages=3, raster=2,
        ),
        conv_kernel(conv(1, 64, 3, 300, 64, 1, 3, stride=2, padding=(0, 1)), [1, 64, 1, 152], [1, 64, 1, 152], stages=2),
    ],
    "pixels left out": [
        conv_kernel(conv(3, 72, 8, 14, 72, 1, 1, stride=2), [3, 64, 2, 8], [3, 64, 4, 8], stages=2, split_k=2),
        conv_kernel(conv(2, 66, 9, 13, 64, 1, 1, "bias", "relu", stride=2, dtype="bfloat16"), [1, 64, 3, 8], [2, 64, 3, 8]),
        conv_kernel(conv(1, 70, 7, 20, 130, 1, 1, "residual", stride=(3, 1)), [1, 64, 1, 24], [1, 128, 3, 24], cluster=2),
        conv_kernel(conv(2, 64, 5, 9, 64, 1, 1, stride=2, padding=1), [1, 64, 2, 8], [1, 64, 2, 8], stages=3),
    ],
    "half a step of channels": [
        conv_kernel(conv(2, 33, 9, 13, 72, 3, 3, "bias", padding=1), [1, 64, 2, 16], [1, 64, 2, 16], stages=2),
    ],
    "split and persistent": [
        conv_kernel(conv(1, 130, 5, 13, 72, 3, 3, "bias", padding=1), [1, 64, 2, 16], [1, 64, 2, 16], stages=2, split_k=4),
        conv_kernel(
            conv(2, 60, 6, 14, 130, 1, 1, "scale"), [1, 64, 2, 8], [1, 64, 2, 16], TINY, stages=3, persistent=1, raster=2,
        ),
    ],
    "clusters": [
        conv_kernel(conv(1, 60, 9, 13, 72, 3, 3, padding=1), [1, 64, 2, 16], [1, 64, 2, 16], stages=2, cluster=2),
        conv_kernel(conv(2, 64, 6, 20, 136, 1, 3, "residual", dilation=2), [2, 64, 2, 8], [2, 64, 2, 16], stages=4, cluster=2),
        conv_kernel(conv(1, 60, 3, 8, 130, 1, 1), [1, 64, 1, 8], [1, 64, 1, 8], stages=1, cluster=2),  # one box for two blocks
    ],
}  # fmt: skip

test_convolutions_are_right = right(CASES, "split and persistent")


def test_operands_are_laid_out_before_and_added_up_after() -> None:
    """Three launches; the main one is known by its name, and the workspace holds parts, image and weights."""
    kernel = CASES["split and persistent"][0]
    assert [launch.entry for launch in kernel.launches] == ["gg_conv2d_layout", "gg_conv2d", "gg_conv2d_finish"]
    assert kernel.main == kernel.launches[1]
    weights, image = kernel.maps
    parts = 4 * kernel.operator.output.size * 4
    assert parts <= image.offset < weights.offset < kernel.workspace_bytes
    assert image.shape == (1, 5, 13, 130) and weights.shape == (3, 3, 72, 130) and image.strides[-1] == 136 * 2


def test_pixels_that_no_window_meets_are_not_laid_out() -> None:
    """Of 8 x 14 pixels under a stride of 2 the workspace has 4 x 7, which boxes take one by one; padding keeps them all."""
    image = CASES["pixels left out"][0].maps[1]
    assert image.shape == (3, 4, 7, 72) and image.every == (1, 1, 1, 1)
    padded = CASES["pixels left out"][3].maps[1]
    assert padded.shape == (2, 5, 9, 64) and padded.every == (1, 2, 2, 1)


def test_boxes_reach_no_further_than_the_hardware_does() -> None:
    """152 columns at every second pixel reach over 304, so they come in boxes of whole eights."""
    _, image = CASES["strides"][2].maps
    assert image.box[2] * 2 <= 256 and 152 % image.box[2] == 0 and image.box[2] % 8 == 0
    assert CASES["strides"][2].source.count("load_box_4d(b_tile") == 152 // image.box[2]


DAMAGED = conv_kernel(conv(2, 130, 6, 13, 72, 3, 3, padding=1, stride=(1, 2)), [1, 64, 2, 8], [1, 64, 4, 8], stages=2)
FAULTS = {
    "window row": ("block_p + block_r - 1", "block_p + block_r", "wrong"),
    "window column": ("block_s - 1", "block_s", "wrong"),
    "weights of another window element": (", block_s, block_r);", ", block_r, block_s);", "wrong"),
    "channels of the next step": ("const int block_c = step / 9", "const int block_c = step / 8", "wrong"),
    "pixels of the other consumer": ("consumer_column * B_BYTES", "0", "wrong"),
    "place of the other consumer": ("consumer_column * REG_P", "0", "wrong"),
    "B as rows of n": ("wgmma_rows_float16(acc", "wgmma_float16(acc", "leading offset is none of its layout"),
    "no barrier in the layout": ("    __syncthreads();\n    #pragma", "    #pragma", "wrong"),
    "a channel of the image twice": ("high = tile[row * 66 + at + 66]", "high = tile[row * 66 + at]", "wrong"),
    "no wait for data": ("barrier_wait(full + stage * 8, parity);", "", "wrong|more arrivals|block ends while|deadlock"),
    "a box left out": ("load_box_4d(b_tile, x_map", "if (step != 3) load_box_4d(b_tile, x_map", "deadlock"),
    "row of the output": ("out_p = block_p + pixel_p + column / 8", "out_p = block_p + pixel_p", "wrong|overflow"),
}

QUICK = ("B as rows of n", "no barrier in the layout")
test_planted_faults_are_caught = planted_show(FAULTS, *QUICK, seeds=2)


def test_a_map_without_the_stride_is_caught() -> None:
    """Every pixel where every second is meant."""
    weights, image = DAMAGED.maps
    assert "wrong" in faults([replace(DAMAGED, maps=(weights, replace(image, steps=())))])[0]


@pytest.mark.parametrize(
    ("op", "hw", "words"),
    [
        (conv(1, 64, 8, 8, 64, 3, 3), "a100", r"takes \(0, 1\)"),
        (conv(1, 24, 8, 8, 64, 3, 3), "h200", r"takes \(0, 1\)"),
        (conv(1, 128, 8, 8, 128, 3, 3, groups=2), "h200", r"takes \(0, 1\)"),
        (conv(1, 64, 80, 80, 64, 1, 1, stride=9), "h200", r"takes \(0, 1\)"),
        (conv(1, 48, 8, 8, 64, 3, 3, dtype="int8"), "h200", r"takes \(0, 1\)"),
    ],
)
def test_convolutions_that_wgmma_cannot_take_are_refused(op: Operator, hw: str, words: str) -> None:
    """Other hardware, few channels, groups, strides longer than a tensor map's, too few channels of 8 bits."""
    tile = [1] * (len(op.spatial) - 4)
    with pytest.raises(ValueError, match=words):
        conv_kernel(op, [1, *tile, 64, 1, 8], [1, *tile, 64, 1, 8], hardware.get(hw))


@pytest.mark.parametrize(
    ("tile", "block", "words"),
    [
        ([1, 64, 4, 4], [1, 64, 4, 4], "4 columns along q: multiples of 8"),
        ([1, 64, 5, 56], [1, 64, 5, 56], "280 columns of a consumer"),
        ([1, 32, 1, 56], [1, 32, 1, 56], "32 rows of a consumer"),
    ],
)
def test_tiles_that_are_no_instructions_are_refused(tile: list[int], block: list[int], words: str) -> None:
    """The message says what fits."""
    with pytest.raises(ValueError, match=words):
        conv_kernel(conv(2, 64, 56, 56, 128, 3, 3, padding=1), tile, block)


@pytest.mark.thorough
@pytest.mark.as_shipped
def test_legal_schedules_are_right() -> None:
    """What the rules let pass can be generated, takes what they count, and is right."""
    small = conv(2, 72, 7, 14, 192, 3, 3, "bias", "relu", padding=1, stride=(1, 2))
    assert faults(legal_convolutions(small, 1, np.random.default_rng(3))) == []
    assert len(legal_convolutions(conv(16, 128, 28, 28, 128, 3, 3, padding=1), 10, np.random.default_rng(4))) == 10


LARGE = conv(16, 256, 56, 56, 256, 3, 3, padding=1)
MENU = {
    "128x224": conv_kernel(LARGE, [1, 64, 4, 56], [1, 128, 4, 56], stages=4, persistent=1, raster=8, cluster=2),
    "256x112": conv_kernel(LARGE, [1, 128, 2, 56], [1, 256, 2, 56], stages=4),
    "stride 2": conv_kernel(
        conv(16, 128, 56, 56, 128, 3, 3, "bias", "relu", "residual", padding=1, stride=2, dtype="bfloat16"),
        [1, 64, 4, 32], [1, 128, 4, 32], stages=4,
    ),
    "7x7": conv_kernel(conv(16, 512, 7, 7, 512, 3, 3, "bias", padding=1), [4, 64, 7, 8], [4, 128, 7, 8], stages=4, split_k=2),
}  # fmt: skip

test_nvrtc_neither_spills_nor_serialises = compile_well(MENU)


@pytest.mark.thorough
@needs_nvrtc
@pytest.mark.skipif(not sass.is_available(), reason=f"no disassembler: pip install {sass.PACKAGE}")
def test_machine_code_has_wgmma_and_bulk_copies() -> None:
    """HGMMA in fours, weights copied and pixels multicast; the layout reads and writes several pairs of elements at a time."""
    cubin = nvrtc.compile_cubin(MENU["128x224"]).cubin
    kernels = {
        entry: Counter(line.partition(" ")[0].partition(".")[0] for line in lines)
        for entry, lines in sass.instructions(sass.disassemble(cubin)).items()
    }
    main, layout = kernels["gg_conv2d"], kernels["gg_conv2d_layout"]
    assert main["HGMMA"] >= 4 and main["UTMALDG"] % 3 == 0 and main["UTMALDG"] > 0 and main["USETMAXREG"] == 2
    assert main["LDL"] == main["STL"] == layout["LDL"] == layout["STL"] == 0
    assert sass.main_loop(cubin).counts["HGMMA"] % 4 == 0
    assert layout["LDG"] >= 8 and layout["STG"] >= 8
