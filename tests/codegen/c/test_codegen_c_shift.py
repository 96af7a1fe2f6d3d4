"""Convolutions as shifted matrix products, copies that tasks share, and register tiles narrower than the others."""

from __future__ import annotations

import pytest

from gensor_gym import operators
from gensor_gym.codegen.c.codegen import generate_c
from gensor_gym.codegen.program import Program
from tests.codegen.c.test_codegen_c_memory import run_kernel_between_guard_pages
from tests.support.c_cases import check, machine, program
from tests.support.thorough import thorough_but

CONVOLUTIONS = [
    "conv2d(n=2, c=5, h=9, w=11, k=20, r=3, s=3, padding=1)",
    "conv2d(n=1, c=3, h=23, w=22, k=16, r=7, s=7, stride=2, padding=3)",
    "conv2d(n=1, c=4, h=8, w=7, k=8, r=1, s=1, stride=2)",
    "conv2d(n=1, c=4, h=6, w=7, k=9, r=1, s=1, padding=1)",
    "conv2d(n=2, c=6, h=12, w=17, k=12, r=3, s=2, stride=(3, 1), padding=(0, 1), dilation=2, groups=2)",
    "conv2d(n=1, c=3, h=14, w=15, k=10, r=3, s=5, stride=(1, 3), padding=(1, 2))",
    'conv2d(n=1, c=7, h=9, w=9, k=8, r=3, s=3, padding=1, dtype="int8")',
]


def shifted(text: str, channels: int, lanes: int, *stages: str) -> Program:
    """Register tiles of 4 channels by 2 x `lanes` pixels, tasks of `channels` channels and 4 rows."""
    op = operators.parse(text).with_epilogue(*stages)
    c, r, s = op.extents[-3:]
    outer = (1,) * (len(op.axes) - 6)
    return program(
        op, (*outer, 4, 2, lanes, 1, 1, 1), (*outer, 4, 2, lanes, 1, 1, 1), (*outer, channels, 4, lanes, c, r, s),
        hw=machine(lanes), convolution=2, pack_a=1,
    )  # fmt: skip


@pytest.mark.parametrize("text", CONVOLUTIONS)
@pytest.mark.parametrize("channels", thorough_but([4, 20], 20))
def test_shifted_products_are_right(text: str, channels: int) -> None:
    """With copies of their own (all channels in a task) and with a shared one, with vectors of two widths."""
    for lanes, stages in ((16, ("residual", "bias", "relu")), (8, ())):
        kernel = generate_c(shifted(text, channels, lanes, *stages))
        check([kernel], 1, 2)
        repeated = channels < kernel.operator.extents[kernel.operator.channel_axis]
        assert ("shared_x" in kernel.source) == repeated


@pytest.mark.parametrize("images, channels", [(4, 5), (1, 4), (3, 2)])
def test_the_last_task_copies_no_image_that_is_not_there(images: int, channels: int) -> None:
    """Five images and channels, which tasks of so many do not divide: beyond them lies a page that may not be touched."""
    op = operators.parse("conv2d(n=5, c=5, h=33, w=33, k=8, r=3, s=3)")
    tiles = [(1, 4, 2, 16, 1, 1, 1), (1, 4, 2, 16, 1, 1, 1), (images, 8, 31, 31, channels, 3, 3)]
    run_kernel_between_guard_pages(generate_c(program(op, *tiles, convolution=2, pack_a=1)))


def test_a_pointwise_convolution_is_read_where_it_lies() -> None:
    op = operators.parse("conv2d(n=2, c=9, h=7, w=7, k=16, r=1, s=1)+residual")
    tiles = [(1, 4, 2, 16, 1, 1, 1), (1, 4, 2, 16, 9, 1, 1), (1, 16, 2, 16, 9, 1, 1)]
    kernel = generate_c(program(op, *tiles, convolution=2))
    assert "workspace_" not in kernel.source and kernel.workspace_bytes == 0
    check([kernel], 2)


@pytest.mark.parametrize("n, names", [(112, {16}), (131, {48}), (160, {16}), (176, {32}), (96, set())])
def test_narrow_tiles_at_the_end_of_the_vector_axis(n: int, names: set[int]) -> None:
    """What is left of n past tiles of 48 goes to a variant of as many whole vectors."""
    op = operators.gemm(m=8, n=n, k=10)
    kernel = generate_c(program(op, (4, 48, 1), (4, 48, 10), (8, 48 * 8, 10), pack_b=1))
    found = {width for width in (16, 32) if f"register_tile_edge_{width}(" in kernel.source}
    found |= {48} if "register_tile_edge(" in kernel.source else set()
    assert found == names
    check([kernel], 1)


@pytest.mark.parametrize("n, task", [(32, 24), (128, 48), (512, 48), (80, 72), (136, 48)])
def test_a_narrow_tile_that_divides_the_extent_but_does_not_end_there(n: int, task: int) -> None:
    """Tiles of 24 leave 8 of n over; a vector of 16 divides n, yet begins 8 before its end, and may write 8 lanes only."""
    op = operators.gemm(m=7, n=n, k=10)
    check([program(op, (6, 24, 1), (6, 24, 10), (12, task, 10), pack_b=1)], 1, 2)


def test_copies_that_tasks_repeat_are_shared() -> None:
    """B is read alike by the tasks along m: one copy. With one task along m every task copies its own part."""
    op = operators.gemm(m=37, n=70, k=33)
    for m, shared in ((16, True), (48, False)):
        kernel = generate_c(program(op, (8, 32, 1), (8, 32, 11), (m, 32, 22), pack_b=1, pack_a=1))
        assert ("shared_B" in kernel.source) == shared
        assert "shared_A" in kernel.source
        check([kernel], 1, 2)


def test_a_copy_larger_than_the_last_cache_is_not_shared() -> None:
    op = operators.gemm(m=4096, n=4096, k=4096)
    kernel = generate_c(program(op, (8, 48, 1), (8, 48, 64), (64, 96, 512), pack_a=1, pack_b=1))
    assert "shared_" not in kernel.source
    assert kernel.workspace_bytes < 4 << 20
