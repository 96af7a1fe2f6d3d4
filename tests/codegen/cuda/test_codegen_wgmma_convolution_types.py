"""Convolutions by wgmma of types that it reads in rows of channels alone: tf32, int8, float8; laid out word by word."""

from __future__ import annotations

import pytest

from gensor_gym.codegen.cuda.wgmma.layout import Transposition
from tests.codegen.cuda.test_codegen_wgmma_convolution import conv, conv_kernel
from tests.support.wgmma_kernels import TINY, check_planted, compile_well, right

F8 = "float8_e4m3fn"
CASES = {
    "tf32": [
        conv_kernel(conv(2, 36, 9, 13, 72, 3, 3, "bias", padding=1, dtype="tf32"), [1, 64, 2, 16], [1, 64, 2, 16], stages=2),
        conv_kernel(conv(1, 67, 7, 8, 130, 1, 1, "residual", dtype="tf32"), [1, 64, 2, 8], [1, 128, 4, 8], stages=3, cluster=2),
        conv_kernel(conv(3, 16, 9, 9, 64, 1, 1, stride=2, dtype="tf32"), [3, 64, 1, 8], [3, 64, 2, 8], stages=2),
    ],
    "int8": [
        conv_kernel(conv(1, 130, 9, 17, 72, 3, 3, "bias", padding=1, dtype="int8"), [1, 64, 1, 16], [1, 64, 2, 16], stages=2),
        conv_kernel(conv(2, 64, 10, 20, 64, 3, 1, stride=(2, 1), dtype="int8"), [1, 64, 2, 16], [2, 64, 2, 32], split_k=2),
        conv_kernel(conv(3, 66, 7, 7, 64, 3, 3, "residual", padding=1, dtype="int8"), [2, 64, 7, 8], [2, 64, 7, 8], stages=2),
        conv_kernel(conv(2, 201, 6, 16, 72, 1, 1, "relu", dtype="int8"), [2, 64, 2, 16], [2, 64, 2, 16], TINY, persistent=1),
    ],
    "float8": [
        conv_kernel(conv(2, 70, 9, 13, 72, 3, 3, "bias", "gelu", padding=1, dtype=F8), [1, 64, 2, 16], [1, 64, 2, 16], stages=2),
        conv_kernel(conv(2, 128, 8, 14, 130, 1, 1, stride=2, dtype=F8), [2, 64, 2, 8], [2, 128, 2, 8], stages=3),
        conv_kernel(conv(1, 150, 5, 13, 64, 2, 3, dilation=(1, 2), dtype=F8), [1, 64, 1, 16], [1, 64, 2, 16], TINY, persistent=2),
    ],
}  # fmt: skip

test_convolutions_of_other_types_are_right = pytest.mark.thorough(right(CASES, "int8"))


def test_words_of_four_bytes_are_laid_out() -> None:
    """Four channels of 8 bits, one of 32; the workspace has rows of whole 16 bytes, maps are of the operator's type."""
    tf32, int8 = CASES["tf32"][0], CASES["int8"][0]
    assert "first | second << 8 | third << 16 | fourth << 24" in int8.source and "= word;" in tf32.source
    assert [each.dtype for each in tf32.maps + int8.maps] == ["tf32", "tf32", "int8", "int8"]
    assert tf32.maps[1].strides[-1] == 36 * 4 and int8.maps[1].strides[-1] == 144
    assert tf32.maps[1].box[-1] == 32 and int8.maps[1].box[-1] == 128


@pytest.mark.parametrize(
    ("item", "columns", "width", "across"), [(1, 56, 4, 56), (1, 196, 4, 128), (1, 49, 1, 49), (4, 196, 1, 32)]
)
def test_neighbours_are_read_together_where_every_row_begins_at_a_word(item: int, columns: int, width: int, across: int) -> None:
    part = Transposition("x", item, 2, 70, columns, 0, columns * 80, 80, columns, (columns, columns, 1))
    assert part.width == width and part.across == across and part.shared_pitch * item // 4 % 2 == 1
    assert part.down * part.across * item <= 8192 and part.down % 64 == 0


FAULTS = {
    "a channel twice": ("third << 16", "second << 16", "wrong"),
    "a row of the tile": ("row * 132 + at + 264", "row * 132 + at + 132", "wrong"),
    "channels of the next step": ("const int block_c = step / 9", "const int block_c = step / 8", "wrong"),
}


@pytest.mark.thorough
def test_faults_of_the_layout_show() -> None:
    check_planted(CASES["int8"][0], FAULTS)


MENU = {
    "tf32": conv_kernel(conv(16, 128, 28, 28, 128, 3, 3, padding=1, dtype="tf32"), [1, 64, 4, 32], [1, 128, 4, 32], stages=4),
    "int8": conv_kernel(conv(16, 128, 28, 28, 128, 3, 3, padding=1, dtype="int8"), [1, 64, 4, 32], [1, 128, 4, 32], stages=4),
    "float8": conv_kernel(conv(16, 256, 14, 14, 512, 1, 1, stride=2, dtype=F8), [2, 64, 7, 8], [2, 128, 7, 8], stages=4),
}  # fmt: skip

test_they_compile_well = compile_well(MENU)
