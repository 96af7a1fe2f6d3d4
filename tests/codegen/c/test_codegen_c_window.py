"""Convolutions and pooling in C: windows, padding, shifted products."""

from __future__ import annotations

import dataclasses
import itertools
import platform
import random
import re
from pathlib import Path

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.c.codegen import generate_c
from gensor_gym.codegen.program import Program
from gensor_gym.codegen.runtime.c import load
from gensor_gym.hardware.cpuinfo import cpu_info
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator
from tests.codegen.c.test_codegen_c_memory import run_kernel_between_guard_pages
from tests.support.apart import in_a_process_of_its_own
from tests.support.c_cases import check, compiled, inputs_of, machine, program
from tests.support.gir_cases import sanitized_apart
from tests.support.thorough import thorough_but


def windowed_operator(rng: random.Random) -> Operator:
    """A window of any stride, padding and dilation over a small image; paddings as wide as the window too."""
    r, s = rng.choice((1, 2, 3, 3, 5)), rng.choice((2, 3, 3, 4))
    size = dict(n=rng.choice((1, 2)), h=r + rng.choice((0, 3, 6, 11)), w=s + rng.choice((0, 4, 11, 25, 38)), r=r, s=s)
    size |= dict(stride=(rng.choice((1, 2)), rng.choice((1, 1, 2, 2, 3))), padding=(rng.randint(0, r), rng.randint(0, s)))
    kind = rng.choice(("conv2d", "depthwise_conv2d", "avg_pool2d", "max_pool2d"))
    dtype = rng.choice(("float32", "float32", "float32", "int8")) if kind != "avg_pool2d" else "float32"
    if kind == "max_pool2d":
        size["padding"] = (size["padding"][0] // 2, size["padding"][1] // 2)
    if kind == "conv2d":
        return operators.conv2d(c=4, k=6, groups=rng.choice((1, 2)), dilation=rng.choice((1, 1, 2)), dtype=dtype, **size)
    return getattr(operators, kind)(c=5, dtype=dtype, **size)


def windowed_program(seed: int, hw: Hardware | None = None) -> Program | None:
    """The program of a seed, most loops over the window written out; None for a window larger than its image."""
    rng = random.Random(seed)
    try:
        op = windowed_operator(rng)
    except ValueError:
        return None
    lanes = rng.choice((16, 16, 8, 4))
    register = [rng.choice((1, 1, 2, 3)) for _ in op.spatial[:-1]] + [rng.choice((4, 7, 8, 14, 16, 24, 32))]
    register += [n if rng.random() < 0.8 else 1 for n in op.extents[len(op.spatial) :]]
    l1 = [n * rng.choice((1, 1, 2)) for n in register]
    task = [n * rng.choice((1, 2, 4)) for n in l1]
    return program(op, tuple(register), tuple(l1), tuple(task), hw=hw or machine(lanes), thread_split=rng.choice((1, 1, 1, 2)))


@pytest.mark.parametrize("block", thorough_but(range(3), 1))
def test_random_windows(block: int) -> None:
    programs = [windowed_program(seed) for seed in range(7000 + 40 * block, 7040 + 40 * block)]
    kernels = [generate_c(p) for p in programs if p is not None]
    assert len(kernels) >= 25 and sum("part_" in kernel.source for kernel in kernels) >= 3
    check(kernels, 2)


def test_lines_are_loaded_once() -> None:
    op = operators.max_pool2d(n=1, c=1, h=34, w=34, r=3, s=3)
    source = generate_c(program(op, (1, 1, 4, 32, 3, 3), (1, 1, 32, 32, 3, 3), (1, 1, 32, 32, 3, 3))).source
    body = source[source.index("static void register_tile") :]
    # 6 lines of 2 vectors at 3 places, where 4 rows of 9 places each would ask for 72.
    assert body.count("= load_16(") == 36 and "masked" not in source and "edge" not in source


def test_pairs_of_strided_lanes_share_their_loads() -> None:
    op = operators.avg_pool2d(n=1, c=1, h=32, w=32, r=2, s=2, stride=2)
    source = generate_c(program(op, (1, 1, 2, 16, 2, 2), (1, 1, 16, 16, 2, 2), (1, 1, 16, 16, 2, 2))).source
    body = source[source.index("static void register_tile") :]
    assert body.count("= load_16(") == 8 and body.count("even_16(") == body.count("odd_16(") == 4


def test_guards_that_are_constants_need_no_variant() -> None:
    op = operators.max_pool2d(n=1, c=8, h=14, w=14, r=3, s=3, padding=1)
    source = generate_c(program(op, (1, 1, 14, 16, 3, 3), (1, 1, 14, 16, 3, 3), (1, 1, 14, 16, 3, 3))).source
    assert "register_tile_edge" not in source and "inside(p" not in source and "x_fill" not in source


def test_the_last_tile_moves_back_inside() -> None:
    op = operators.gemm(m=3, n=100, k=5)
    source = generate_c(program(op, (2, 16, 1), (2, 16, 5), (4, 112, 5))).source
    assert "register_tile_edge" not in source and "masked" not in source
    tiles = [(2, 112), (1, 32), (3, 48)]
    check([program(op, (rows, 16, 1), (rows, 16, 5), (rows, width, 5)) for rows, width in tiles], 2)


@pytest.mark.thorough
def test_rows_outside_are_pad_values_for_every_first_row() -> None:
    programs = []
    for padding, rows, stride in itertools.product((1, 2, 3), (1, 2, 3), (1, 2)):
        op = operators.conv2d(n=1, c=2, h=5, w=18, k=2, r=3, s=3, stride=(stride, 1), padding=(padding, 1))
        programs.append(program(op, (1, 2, rows, 16, 1, 3, 3), (1, 2, rows, 16, 2, 3, 3), (1, 2, 2 * rows, 16, 2, 3, 3)))
    check(programs, 2)


def test_lanes_past_the_end_are_not_written() -> None:
    op = operators.max_pool2d(n=1, c=3, h=9, w=13, r=3, s=3, padding=1)
    kernel = generate_c(program(op, (1, 1, 3, 16, 3, 3), (1, 1, 9, 16, 3, 3), (1, 1, 9, 16, 3, 3)))
    assert "store_first_16" in kernel.source
    inputs = inputs_of(op)
    np.testing.assert_array_equal(load(kernel, 1)(*inputs), op.reference(*inputs).astype(np.float32))


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", thorough_but([range(7200, 7212), range(7212, 7225)], range(7200, 7212)), ids=["few", "more"])
def test_sanitizers_find_nothing_in_windows(tmp_path: Path, seeds: range) -> None:
    programs = [windowed_program(seed) for seed in seeds]
    assert sanitized_apart(tmp_path, [generate_c(p) for p in programs if p is not None]) == ""


@pytest.mark.thorough
def test_windows_between_guard_pages() -> None:
    in_a_process_of_its_own(__name__, "run_between_guard_pages(range(7300, 7325))")


def run_between_guard_pages(seeds: range) -> None:
    """Run the windows of seeds on tensors at the edge of accessible memory, and compare."""
    for kernel in compiled(p for p in map(windowed_program, seeds) if p is not None):
        run_kernel_between_guard_pages(kernel)


@pytest.mark.skipif(cpu_info().lanes < 8 or platform.machine() != "x86_64", reason="kernels are compiled for AVX2")
@pytest.mark.parametrize(("arch", "lanes"), thorough_but([("haswell", 8), ("nehalem", 4), ("nehalem", 8)], ("nehalem", 8)))
def test_windows_without_mask_registers(arch: str, lanes: int) -> None:
    """Mask vectors, and plain loops where there are none."""
    programs = [windowed_program(seed, machine(lanes, arch)) for seed in range(7400, 7420)]
    check([generate_c(p) for p in programs if p is not None])


@pytest.mark.parametrize("lanes", thorough_but([4, 8, 16], 16))
def test_rows_of_pixels_are_turned_in_registers(lanes: int) -> None:
    """Lines of four and more columns, of channels in one or two vectors; what sticks out is stored through a buffer."""
    made, lines = [], ((4, 2, 12), (8, 1, 16), (12, 1, 24), (2, 1, 6), (8, 2, 11), (13, 1, 13), (7, 2, 14), (5, 1, 9))
    for columns, chunks, width in lines:
        op = operators.conv2d(n=1, c=5, h=6, w=width, k=2 * lanes + 3, r=3, s=3, padding=1).with_epilogue("bias", "relu")
        tile = (1, chunks * lanes, 2, columns)
        levels = (*tile, 1, 1, 1), (*tile, 5, 3, 3), (*tile, 5, 3, 3)
        made.append(generate_c(program(op, *levels, hw=machine(lanes), convolution=1, pack_a=1, pack_b=1)))
    texts = [kernel.source for kernel in made]
    names = [re.findall(rf"^    spread_(\w+)_{lanes}\(", text, re.M)[:1] for text in texts]
    eight = ["eight"] if lanes >= 8 else ["four"]
    assert names[:4] == [["four"], eight, eight, []] and names[5:] == [eight, ["four"], ["four"]]
    check(made, 2)
    for kernel in made[5:]:
        run_kernel_between_guard_pages(kernel)
    wrong = dataclasses.replace(made[0], source=re.sub(r"\{sum_0_0, sum_1_0", "{sum_1_0, sum_0_0", texts[0]))
    with pytest.raises(AssertionError, match="times the bound"):
        check([wrong], 1)


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
