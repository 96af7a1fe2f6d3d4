"""Windows written out, borders and shifted tiles in generated C: right for every kind of window, tile and width."""

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
    """Tiles of 4, 8, 12 and 2 columns, of channels in one or two vectors; what sticks out is stored through a buffer."""
    made = []
    for columns, chunks, width in ((4, 2, 12), (8, 1, 16), (12, 1, 24), (2, 1, 6), (8, 2, 11)):
        op = operators.conv2d(n=1, c=5, h=6, w=width, k=2 * lanes + 3, r=3, s=3, padding=1).with_epilogue("bias", "relu")
        tile = (1, chunks * lanes, 2, columns)
        levels = (*tile, 1, 1, 1), (*tile, 5, 3, 3), (*tile, 5, 3, 3)
        made.append(generate_c(program(op, *levels, hw=machine(lanes), convolution=1, pack_a=1, pack_b=1)))
    texts = [kernel.source for kernel in made]
    names = [re.findall(rf"^    spread_(\w+)_{lanes}\(", text, re.M)[:1] for text in texts]
    eight = ["eight"] if lanes >= 8 else ["four"]
    assert names[:4] == [["four"], eight, ["four"], []]
    check(made, 2)
    wrong = dataclasses.replace(made[0], source=re.sub(r"\{sum_0_0, sum_1_0", "{sum_1_0, sum_0_0", texts[0]))
    with pytest.raises(AssertionError, match="times the bound"):
        check([wrong], 1)
