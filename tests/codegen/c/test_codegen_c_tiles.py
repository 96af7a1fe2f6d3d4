"""Products in tile registers (AMX), or in what stands in for them: right, between guard pages, and with faults that show."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from gensor_gym import operators
from gensor_gym.codegen.c.codegen import generate_c
from gensor_gym.codegen.c.plan import make_plan
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import Program
from gensor_gym.codegen.runtime.c import load
from tests.codegen.c.test_codegen_c_memory import run_kernel_between_guard_pages
from tests.support.apart import in_a_process_of_its_own
from tests.support.c_cases import check, inputs_of, machine, needs, program, worst_error
from tests.support.gir_cases import sanitized_apart
from tests.support.thorough import thorough_but

HOST = dataclasses.replace(machine(), tensor_peak=(("bfloat16", 3e12), ("int8", 6e12)))
BATCHES, PER_BATCH = 13, 16
QUANTISED = ("+dequantize+bias+quantize", "+dequantize+bias+residual_int8+scale+quantize")
EPILOGUES = {"bfloat16": ("", "+bias", "+bias+residual+relu"), "int8": ("", *QUANTISED, "+bias+dequantize")}
ROWS = (1, 3, 8, 14, 16, 17, 20, 28, 32)


def tiled(seed: int) -> Program:
    """A random program whose register tiles are multiplied in tiles."""
    rng = random.Random(seed)
    while True:
        made = convolution(rng) if seed % 2 else matrix(rng)
        if make_plan(made).tiling:
            return made


def matrix(rng: random.Random) -> Program:
    """A product of matrices, perhaps in a batch."""
    dtype, batched = rng.choice(("bfloat16", "int8")), rng.random() < 0.2
    m, n, k = rng.randint(1, 70), rng.randint(1, 150), rng.choice((32, 64, 77, 128, 150, 192))
    of = "" if batched else rng.choice(EPILOGUES[dtype])
    sizes = f"b=2, m={m}, n={n}, k={k}" if batched else f"m={m}, n={n}, k={k}"
    op = operators.parse(f'{"batched_gemm" if batched else "gemm"}({sizes}, dtype="{dtype}"){of}')
    register = rng.choice(ROWS), rng.choice((16, 32, 48, 64)), 1
    inner = tuple(size * rng.choice((1, 2)) for size in register[:2]) + (rng.choice((2, 32, k)),)
    outer = tuple(size * rng.choice((1, 2, 5)) for size in inner[:2]) + (rng.choice((1, 3)) * inner[2],)
    knobs = {"pack_a": rng.choice((0, 1)), "loop_order": rng.choice((0, 1)), "thread_split": rng.choice((1, 1, 2))}
    frozen = dataclasses.replace(op, frozen=not batched and rng.random() < 0.5)
    return program(frozen, *(((1,) if batched else ()) + tile for tile in (register, inner, outer)), hw=HOST, pack_b=1, **knobs)


def convolution(rng: random.Random) -> Program:
    """A convolution whose lanes are output channels; for half of them, input channels do not fill whole rows of a tile.

    Output channels fill no whole number of vectors in a third.
    """
    dtype, few, last = rng.choice(("bfloat16", "int8")), rng.random() < 0.5, rng.random() < 0.5
    short = (24, 40, 72, 100) if last else (2, 3, 4, 13, 24)
    c = rng.choice(short) if few else (64 if dtype == "int8" else 32) * rng.choice((1, 2))
    windows = ((3, 3), (1, 5), (7, 7), (2, 16)) if few and not last else ((1, 1), (3, 3))
    k, (r, s) = rng.choice((16, 32, 80, 24, 24, 40, 8, 72, 48)), rng.choice(windows)
    h, w = rng.randint(3, 9), rng.choice((3, 7, 14, 17, 28)) + (s if few else 0)
    sizes = f"n={rng.choice((1, 2))}, c={c}, h={h}, w={w}, k={k}, r={r}, s={s}, stride={rng.choice((1, 2))}, padding={r // 2}"
    orders = (', image="nhwc"' if last else "") + rng.choice(("", ', result="nhwc"'))
    op = operators.parse(f'conv2d({sizes}, dtype="{dtype}"{orders}){rng.choice(EPILOGUES[dtype])}')
    register = 1, rng.choice((16, 32, 64)), rng.choice((1, 1, 2, 3)), rng.choice((1, 4, 7, 14)), 1, 1, 1
    inner = tuple(size * rng.choice((1, 2)) for size in register[:4]) + (rng.choice((4, 64, c)), rng.choice((1, r)), s)
    outer = tuple(size * rng.choice((1, 2)) for size in inner[:4]) + (rng.choice((1, 2)) * inner[4], r, s)
    frozen = dataclasses.replace(op, frozen=rng.random() < 0.5)
    packed = 1 if not last or r > 1 else rng.choice((0, 1))
    return program(frozen, register, inner, outer, hw=HOST, convolution=1, pack_a=packed, pack_b=1)


def standing_in(kernel: Kernel) -> Kernel:
    """The kernel for compilers whose target has no tile registers."""
    assert "__AMX_TILE__" in kernel.source
    return dataclasses.replace(kernel, source=kernel.source.replace("__AMX_TILE__", "__NOWHERE__"))


@pytest.mark.parametrize("batch", thorough_but(range(BATCHES), 0))
def test_random_programs(batch: int) -> None:
    kernels = [generate_c(tiled(PER_BATCH * batch + seed)) for seed in range(PER_BATCH)]
    check(kernels[::2], 1)
    check(kernels[1::2], 2)
    check(map(standing_in, kernels[::4]), 1)


def run_between_guard_pages(seeds: Sequence[int]) -> None:
    """The kernels of some seeds, on their registers and without."""
    for seed in seeds:
        kernel = generate_c(tiled(seed))
        run_kernel_between_guard_pages(kernel)
        run_kernel_between_guard_pages(standing_in(kernel))


@pytest.mark.parametrize("first", thorough_but((1000, *range(1004, 1064, 12)), 1000))
def test_tensors_between_guard_pages(first: int) -> None:
    in_a_process_of_its_own(__name__, f"run_between_guard_pages({range(first, first + (4 if first == 1000 else 12))!r})")


@pytest.mark.thorough
def test_under_sanitizers(tmp_path: Path) -> None:
    needs("native")
    assert not sanitized_apart(tmp_path, [standing_in(generate_c(tiled(seed))) for seed in range(2000, 2040)])


@pytest.mark.parametrize("orders", ["", ', image="nhwc", result="nhwc"'])
@pytest.mark.parametrize("pixels", [(1, 7), (3, 1), (2, 3)])
def test_tiles_of_pixels_of_two_images(orders: str, pixels: tuple[int, int]) -> None:
    op = operators.parse(f'conv2d(n=2, c=128, h=7, w=7, k=16, r=3, s=3, padding=1, dtype="int8"{orders})')
    register, outer = (2, 16, *pixels, 1, 1, 1), (2, 16, 6, 7, 128, 3, 3) if pixels[0] > 1 else (2, 16, 7, 7, 128, 3, 3)
    made = program(op, register, (2, 16, *pixels, 128, 3, 3), outer, hw=HOST, convolution=1, pack_a=1, pack_b=1)
    check([generate_c(made)], 1)


@pytest.mark.parametrize("channels, dtype", [(544, "bfloat16"), (1088, "int8")])
def test_the_last_piece_of_a_shared_copy_has_fewer_rows_of_channels(channels: int, dtype: str) -> None:
    """As for the 17 rows of channels of a DenseNet: pieces of two rows, and one of one row."""
    op = operators.parse(f'conv2d(n=1, c={channels}, h=3, w=14, k=32, r=1, s=1, dtype="{dtype}")')
    register, task = (1, 16, 1, 14, 1, 1, 1), (1, 16, 3, 14, channels, 1, 1)
    kernel = generate_c(program(op, register, task, task, hw=HOST, convolution=1, pack_a=1, pack_b=1))
    assert "call->shared_x" in kernel.source
    check([kernel, standing_in(kernel)], 1)


@pytest.mark.parametrize(
    ("channels", "dtype", "step"), [(40, "bfloat16", 20), (144, "bfloat16", 24), (72, "int8", 36), (24, "int8", 24)]
)
def test_channels_that_fill_no_whole_rows_are_cut_into_equal_ones(channels: int, dtype: str, step: int) -> None:
    """Output channels fill one and a half vectors."""
    op = operators.parse(f'conv2d(n=1, c={channels}, h=3, w=14, k=24, r=1, s=1, dtype="{dtype}", image="nhwc", result="nhwc")')
    register, inner, task = ((1, 32, lines, 14, depth, 1, 1) for lines, depth in ((1, 1), (1, channels), (3, channels)))
    made = program(op, register, inner, task, hw=HOST, convolution=1, pack_b=1)
    found = make_plan(made).tiling
    assert found is not None and (found.step, found.row_bytes) == (step, step * (2 if dtype == "bfloat16" else 1))
    check([generate_c(made), standing_in(generate_c(made))], 1)


def test_registers_have_rows_if_and_only_if_these_have_bytes() -> None:
    """Otherwise the processor refuses the shapes. A tile of sums has as many rows as the rows it multiplies."""
    for seed in range(60):
        source = generate_c(tiled(seed)).source
        (widths, counts), = re.findall(r"shapes_of_tiles = \{1, \.row_bytes = \{(.*?)\}, \.rows = \{(.*?)\}\};", source)
        rows = dict(map(lambda one: tuple(map(int, re.findall(r"\d+", one))), counts.split(", ")))
        assert [one.split(" ")[0] for one in widths.split(", ")] == [f"[{number}]" for number in rows]
        dots = re.findall(r'tile_dot\("\w+", (\d), (\d), (\d), [01]\)', source)
        sizes = dict(map(lambda one: tuple(map(int, re.findall(r"\d+", one))), widths.split(", ")))
        assert dots and all(rows[int(c)] == rows[int(a)] and 4 * rows[int(b)] == sizes[int(a)] for c, a, b in dots)


MATRIX = '{}(m=40, n=96, k=136, dtype="{}")'
FIRST = 'conv2d(n=1, c=3, h=20, w=28, k=64, r=7, s=7, stride=2, padding=3, dtype="bfloat16")'
LAST = 'conv2d(n=1, c=64, h=9, w=14, k=64, r=3, s=3, padding=1, dtype="int8", image="nhwc", result="nhwc")'
IMAGE = 'conv2d(n=1, c=128, h=9, w=14, k=64, r=3, s=3, padding=1, dtype="{}")'


@pytest.mark.parametrize("text, right, wrong", [
    (MATRIX.format("gemm", "bfloat16"), "tile_load(5, A + k + 1360", "tile_load(5, A + k"),  # rows of the first part
    (MATRIX.format("gemm", "bfloat16"), "tile_zero(1);", ""),  # sums of the tile before
    (MATRIX.format("gemm", "bfloat16"), "B + k * 32, 128)", "B + k * 32, 64)"),
    (MATRIX.format("gemm", "int8"), '"tdpbssd"', '"tdpbusd"'),
    (MATRIX.format("gemm", "int8"), " - start_0_0", ""),
    (IMAGE.format("int8"), "-128, words[g]", "0, words[g]"),
    (IMAGE.format("int8"), "packed += 256", "packed += 128"),
    (IMAGE.format("bfloat16"), "turn_eight(first, stride, packed + 32 * i + r)", "turn_eight(first, stride, packed + 32 * i)"),
    (IMAGE.format("bfloat16"), "memset(packed, 0", "memset(packed, 0x41"),
    (LAST, "make_unsigned(packed", "(void)(packed"),
    (LAST, "r * 1088 + s * 64, 64)", "r * 1088 + s * 64, 128)"),
    (LAST, "r * 6144 + s * 2048, 128)", "r * 2048 + s * 6144, 128)"),  # taps of a panel
    (LAST, ", 9, 64, 1, panel_at", ", 9, 60, 1, panel_at"),
    (FIRST, "s * 64, 128)", "s * 64, 64)"),
    (FIRST, "const long s = 0;", "const long s = 1;"),
])  # fmt: skip
def test_planted_faults_show(text: str, right: str, wrong: str) -> None:
    op = operators.parse(text.replace("k=136", "k=128") if "int8" in text else text)
    if op.name == "gemm":
        made = program(op, (20, 32, 1), (40, 32, op.extents[2]), (40, 96, op.extents[2]), hw=HOST, pack_b=1)
    else:
        window = op.extents[4:]
        tiles = (1, 32, 1, 14, 1, 1, 1), (1, 32, 9, 14, *window), (1, 64, 9, 14, *window)
        made = program(op, *tiles, hw=HOST, convolution=1, pack_a=1, pack_b=1)
    inputs = inputs_of(op)
    for kernel in (generate_c(made), standing_in(generate_c(made))):
        assert right in kernel.source and worst_error(op, inputs, load(kernel, 1)(*inputs)) <= 1.0
        faulty = dataclasses.replace(kernel, source=kernel.source.replace(right, wrong))
        if '"tdpbssd"' in right:  # what stands in has the sign as an argument of its own
            faulty = dataclasses.replace(faulty, source=re.sub(r"(tile_dot\(.*), 1\);", r"\1, 0);", faulty.source))
        assert not worst_error(op, inputs, load(faulty, 1)(*inputs)) <= 1.0


def last(sizes: str, register: tuple[int, int, int], epilogue: str = QUANTISED[0], **knobs: int) -> Program:
    """A convolution with channels last in register tiles of (channels, lines, pixels), in one task."""
    op = operators.parse(f'conv2d(n=1, {sizes}, dtype="int8", image="nhwc", result="nhwc"){epilogue}')
    _, k, p, q, c, r, s = op.extents
    tile = (1, *register)
    whole = tuple(-(-extent // size) * size for extent, size in zip((1, k, p, q), tile, strict=True))
    return program(op, (*tile, 1, 1, 1), (*tile, c, r, s), (*whole, c, r, s), hw=HOST, convolution=1, pack_b=1, **knobs)


WINDOW, POINTS = "c=64, h=7, w=7, k={}, r=3, s=3, padding=1", "c=64, h=7, w=7, k={}, r=1, s=1"
JOINED = [
    (last(WINDOW.format(32), (16, 7, 7), pack_a=1), ((0, 16), (15, 16), (30, 16), (45, 16)), 9),
    (last(WINDOW.format(64), (64, 2, 7), QUANTISED[1], pack_a=1), ((0, 16),), 9),
    (last(POINTS.format(32), (16, 7, 7)), ((0, 13), (12, 13), (24, 13), (36, 13)), 7),
    (last(POINTS.format(48), (32, 4, 7), QUANTISED[1]), ((0, 14), (14, 14)), 7),  # the last tile is narrower
    (last("c=64, h=9, w=9, k=16, r=1, s=1, stride=2", (16, 5, 5), ""), ((0, 14), (13, 14), (27, 14)), 9),
]


def test_parts_across_the_ends_of_lines() -> None:
    plans = [make_plan(made).tiling for made, _, _ in JOINED]
    assert [(plan.parts, plan.line) for plan in plans if plan] == [(parts, line) for _, parts, line in JOINED]
    kernels = [generate_c(made) for made, _, _ in JOINED]
    check(kernels, 1)
    check(map(standing_in, kernels), 1)


def test_four_vectors_leave_at_once() -> None:
    """Of one row, two or four rows, and with some left; of products of matrices, too."""
    tiles = (64, 1, 7), (32, 1, 7), (16, 1, 7), (48, 1, 4)
    made = [last(POINTS.format(64), tile, each) for tile in tiles for each in QUANTISED]
    matrix = operators.parse('gemm(m=28, n=96, k=128, dtype="int8")+dequantize+bias+quantize')
    made.append(program(matrix, (14, 32, 1), (14, 32, 128), (28, 96, 128), hw=HOST, pack_b=1))
    kernels = [generate_c(one) for one in made]
    names = ["store_whole", "store_halves", "store_quarters", "store_quarters", "store_halves"]
    assert all(f"{name}_16(" in kernel.source for name, kernel in zip(names, [*kernels[::2]], strict=True))
    assert "store_narrow_16(" in kernels[2].source and "store_narrow_16(" not in kernels[0].source
    check(kernels, 1)
    check([dataclasses.replace(kernel, source=kernel.source.replace("__AVX512BW__", "__NOWHERE__")) for kernel in kernels[:4]], 1)


@pytest.mark.parametrize("right, wrong", [
    ("&sums_of_tiles[9][0]", "&sums_of_tiles[7][0]"),  # the first pixel of the second line
    ("joined_16(sum_0_0, sum_1_0,", "joined_16(sum_1_0, sum_0_0,"),
    ("store_quarters_16(y_2, y_2 + 32,", "store_quarters_16(y_2, y_2 + 64,"),
    ("_mm512_packs_epi32((__m512i)u, (__m512i)v)", "_mm512_packs_epi32((__m512i)v * 0, (__m512i)v * 0)"),  # no zero point
    ("0, 4, 8, 12, 1, 5, 9, 13,", "0, 1, 2, 3, 4, 5, 6, 7,"),
    ("= start_0_0 + load_16", "= load_16"),  # the excess of bytes made unsigned
])  # fmt: skip
def test_planted_faults_of_stores_show(right: str, wrong: str) -> None:
    made = JOINED[0][0]
    kernel, inputs = generate_c(made), inputs_of(made.operator)
    assert right in kernel.source and worst_error(made.operator, inputs, load(kernel, 1)(*inputs)) <= 1.0
    faulty = dataclasses.replace(kernel, source=kernel.source.replace(right, wrong))
    assert not worst_error(made.operator, inputs, load(faulty, 1)(*inputs)) <= 1.0


def asked(source: str, steps: Iterable[dict[str, int]]) -> list[int]:
    """Numbers of the lines that the prefetches of a micro-kernel ask for, for each step's values of loop variables."""
    texts = re.findall(r"ahead_\d+ = \(unsigned long\)\((.*?)\)( \+ \d+)?;", source)
    return [int(eval(first.replace("/", "//"), {}, step)) + int(more.strip(" +") or 0) for step in steps for first, more in texts]


def test_panels_of_windows_are_prefetched_step_by_step() -> None:
    """The next panel's lines in equal parts by the tiles that read this one; the same panel's, one page on, by a single tile."""
    sizes = "c=256, h=7, w=7, k=256, r=3, s=3, padding=1"
    tiles = ((16, 4, 7), 0), ((16, 7, 7), 0), ((16, 7, 7), 1)
    made = [last(sizes, tile, pack_a=1, loop_order=order) for tile, order in tiles]
    frozen = (dataclasses.replace(one, operator=dataclasses.replace(one.operator, frozen=True)) for one in made)
    several, one, other = (generate_c(each).source for each in frozen)
    steps = [{"c": c, "r": r, "s": s} for c in range(0, 256, 64) for r in range(3) for s in range(3)]
    lines = [line for p in (0, 3) for line in asked(several, [{**step, "p": p} for step in steps])]
    assert sorted(lines) == list(range(16 * len(steps))) and lines == sorted(lines)
    assert f"__builtin_prefetch(w + {(256 + 4) * 9 * 16 + 63} + ahead_0 * 64, 0, 2)" in several
    assert asked(one, steps) == asked(other, steps) == list(range(16 * len(steps)))
    assert "__builtin_prefetch(w + 4159 + ahead_0 * 64)" in one


def test_weights_of_the_next_columns_are_prefetched() -> None:
    """All cache lines of a panel, each once, by the register tiles that read the panel before."""
    op = dataclasses.replace(operators.gemm(128, 768, 1024, dtype="bfloat16"), frozen=True)
    kernel = generate_c(program(op, (32, 32, 1), (128, 32, 1024), (128, 768, 1024), hw=HOST, pack_b=1))
    asked = re.findall(r"ahead_(\d) = \(unsigned long\)\((.*?)\)(?: \+ \d)?;", kernel.source)
    assert len(asked) == 8 and "__builtin_prefetch(B" in kernel.source
    lines = set()
    for tile in range(4):
        for k in range(0, 1024, 32):
            share = (tile * (1024 // 32) + k // 32) * 32 // 4
            lines |= {share + more for more in range(8)}
    assert lines == set(range(32 * 32))
    check([kernel], 1)


def test_only_products_whose_rows_are_regular_are_tiled() -> None:
    """Rows of several batches, unequal parts in three registers, odd widths, and taps that are cut or apart."""
    batched = operators.batched_gemm(2, 32, 64, 64, dtype="bfloat16")
    rows = operators.gemm(80, 64, 64, dtype="bfloat16")
    image, apart = (operators.parse(f'conv2d(n=1, c=48, h=9, w=14, k=64, r=3, s=3, padding=1{more}, dtype="int8")')
                    for more in ("", ", dilation=2"))  # fmt: skip
    whole, cut = (((1, 32, 1, 14, 1, 1, 1), (1, 32, 9, 14, 48, 3, s), (1, 64, 9, 14, 48, 3, 3)) for s in (3, 1))
    made = [
        program(batched, (2, 8, 32, 1), (2, 32, 32, 64), (2, 32, 64, 64), hw=HOST, pack_b=1),
        program(rows, (40, 16, 1), (40, 16, 64), (80, 64, 64), hw=HOST, pack_b=1),
        program(rows, (8, 24, 1), (8, 24, 64), (80, 48, 64), hw=HOST, pack_b=1),
        program(rows, (8, 32, 1), (8, 32, 64), (80, 64, 64), hw=machine(), pack_b=1),
        program(image, *cut, hw=HOST, convolution=1, pack_a=1, pack_b=1),
        program(apart, *whole, hw=HOST, convolution=1, pack_a=1, pack_b=1),
    ]
    assert not any(make_plan(one).tiling for one in made)
    check(made, 1)
    regular = [program(rows, (m, 16, 1), (m, 16, 64), (m, 64, 64), hw=HOST, pack_b=1) for m in (39, 48, 64)]
    regular.append(program(image, *whole, hw=HOST, convolution=1, pack_a=1, pack_b=1))
    assert all(make_plan(one).tiling for one in regular)
