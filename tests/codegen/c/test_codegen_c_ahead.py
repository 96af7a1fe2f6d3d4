"""Lines of the next lanes, asked for while the rows of these are computed: where, all of them, and nothing else."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.c.codegen import generate_c
from gensor_gym.codegen.c.micro.ahead import MANY_TILES
from gensor_gym.codegen.program import Program
from gensor_gym.hardware.types import Hardware
from tests.support.c_cases import check, machine, program

ASKED = "__builtin_prefetch("


def small() -> Hardware:
    """A machine whose second cache holds 16 KB, so that small operators are far away."""
    hw = machine()
    sizes = {"l1": 8192, "l2": 16384}
    return dataclasses.replace(
        hw, memory=tuple(dataclasses.replace(level, capacity=sizes.get(level.name, level.capacity)) for level in hw.memory)
    )


def product(m: int = 24, lanes: int = 64, **knobs: int) -> Program:
    """A product whose task has `m` / 4 tiles of rows and `lanes` / 32 panels of weights of 48 elements each."""
    op = operators.gemm(m=48, n=128, k=48)
    return program(op, (4, 32, 1), (4, 32, 48), (m, lanes, 48), hw=small(), **{"pack_b": 1, **knobs})


def halves() -> Program:
    """A product whose panels are 24 lanes wide, so that every other step of its reduction ends within a cache line."""
    op = operators.gemm(m=48, n=120, k=48)
    hw = dataclasses.replace(small(), lanes=8)
    return program(op, (4, 24, 1), (4, 24, 48), (24, 48, 48), hw=hw, pack_b=1)


def blocks(inner: int = 24) -> Program:
    """A 3x3 convolution in blocks of 4 input channels, with `inner` output channels of a block in panels of 24."""
    op = dataclasses.replace(operators.parse('conv2d(n=1, c=8, h=8, w=8, k=48, r=3, s=3, padding=1, image="nhwc")'), frozen=True)
    hw = dataclasses.replace(small(), lanes=8)
    tiles = (1, 24, 4, 1, 1, 1, 1), (1, inner, 8, 8, 4, 3, 3), (1, inner, 8, 8, 8, 3, 3)
    return program(op, *tiles, hw=hw, convolution=1, pack_a=1, pack_b=1)


def image(k: int = 16, hw: Hardware | None = None, **knobs: int) -> Program:
    """A 1x1 convolution as a product with pixels in the lanes, `k` / 4 tiles of channels."""
    op = operators.conv2d(n=1, c=20, h=16, w=16, k=k, r=1, s=1)
    tiles = (1, 4, 2, 16, 1, 1, 1), (1, 4, 2, 16, 20, 1, 1), (1, k, 8, 16, 20, 1, 1)
    return program(op, *tiles, hw=hw or small(), **{"convolution": 2, **knobs})


def window(rows: int) -> Program:
    """A 3x3 convolution with channels in the lanes, tasks of one tile each, `rows` of which read the same panel in turn."""
    op = operators.conv2d(n=1, c=16, h=rows, w=4, k=64, r=3, s=3, padding=1)
    tile = (1, 32, 1, 4)
    return program(op, (*tile, 1, 1, 1), (*tile, 16, 3, 3), (*tile, 16, 3, 3), hw=small(), convolution=1, pack_b=1)


@pytest.mark.parametrize("made", [product(), image(), halves(), blocks()], ids=["panels", "image", "halves", "blocks"])
def test_far_lines_are_asked_for_and_nothing_is_computed_otherwise(made: Program) -> None:
    kernel = generate_c(made)
    assert ASKED in kernel.source
    check([kernel], 2)


def test_tasks_that_read_the_same_panel_take_turns() -> None:
    hw = small()
    roomy = dataclasses.replace(
        hw, memory=tuple(dataclasses.replace(x, capacity=65536) if x.name == "l2" else x for x in hw.memory)
    )
    made = dataclasses.replace(window(5), hardware=roomy)
    kernel = generate_c(made)
    assert "t.turn = index % 5;" in kernel.source
    assert ASKED in kernel.source
    check([kernel], 2)


def pixels(r: int = 3, hw: Hardware | None = None, **knobs: int) -> Program:
    """A convolution with channels in the lanes, whose planes of 26 rows at a pitch of 48 elements are copied."""
    op = operators.conv2d(n=1, c=6, h=24, w=24, k=32, r=r, s=r, padding=r // 2)
    tile = (1, 16, 2, 4)
    levels = (*tile, 1, 1, 1), (*tile, 6, r, r), (*tile, 6, r, r)
    return program(op, *levels, hw=hw or small(), **{"convolution": 1, "pack_a": 1, "pack_b": 1, **knobs})


def test_pixels_of_a_later_channel_are_asked_for_line_by_line() -> None:
    kernel = generate_c(pixels())
    places = {int(place) for place in re.findall(r"__builtin_prefetch\(x \+ c \* 1248 \+ (\d+)\)", kernel.source)}
    assert places == {4 * 1248 + row * 48 + column for row in range(4) for column in (0, 5)}
    assert kernel.source.count(ASKED) == len(places) + kernel.source.count(", 1);")
    check([kernel], 2)
    for other in (pixels(hw=machine()), pixels(1), pixels(prefetch=4)):
        assert "__builtin_prefetch(x" not in generate_c(other).source


@pytest.mark.parametrize(
    "made",
    [
        product(m=4),  # one tile of rows: nothing to ask meanwhile
        product(loop_order=1),  # rows are the outer loop
        product(prefetch=8),  # asked for by the knob
        image(k=64),  # sixteen tiles
        image(hw=machine()),  # stays in the second cache
        image(loop_order=1),
    ],
    ids=["one_tile", "rows_outside", "knob", "many_tiles", "near", "image_rows_outside"],
)
def test_nothing_is_asked_for_where_it_would_not_pay(made: Program) -> None:
    assert "ahead_0" not in generate_c(made).source


def results(r: int = 3, h: int = 16, hw: Hardware | None = None, **orders: str) -> Program:
    """A convolution with channels in the lanes and tiles of two lines of 20 pixels, whose results of 80 KB are far."""
    op = operators.conv2d(n=1, c=6, h=h, w=20, k=64, r=r, s=r, padding=r // 2, **orders)
    tile = (1, 32, 2, 20)
    levels = (*tile, 1, 1, 1), (*tile, 6, r, r), (*tile, 6, r, r)
    return program(op, *levels, hw=hw or small(), convolution=1, pack_a=1, pack_b=1)


def asked_results(made: Program) -> tuple[set[int], int, int]:
    """Return the distances of the results that the first register tile prefetches, for each lane, and the stride of lanes."""
    source = generate_c(made).source
    inside = source.split("it lies inside every tensor. */")[1].split("/* Register tile")[0]
    found = re.findall(r"__builtin_prefetch\(y_\d+ \+ (\d+)(?: \+ lane \* (\d+))?, 1\);", inside)
    assert len(found) == inside.count(", 1);")
    (lanes,) = re.findall(r"for \(long lane = 0; lane < (\d+); lane\+\+\) {", inside) or ["1"]
    return {int(place) for place, _ in found}, int(lanes), max(int(stride or 1) for _, stride in found)


def test_every_line_of_far_results_is_asked_for_before_it_is_stored() -> None:
    """Lines of pixels of each channel with channels first; with channels last, lines of channels of each pixel."""
    first, last = results(), results(result="nhwc")
    assert asked_results(first) == ({0, 16, 20, 36}, 32, 16 * 20)
    assert asked_results(last) == ({64 * pixel + at for pixel in range(2 * 20) for at in (0, 16)}, 1, 1)
    check([generate_c(first), generate_c(last)], 2)
    edge = generate_c(results(h=15, result="nhwc")).source.split("it sticks out of the extents or reads padding. */")[1]
    assert ", 1);" not in edge  # its rows may be clamped to one row
    for other in (results(hw=machine()), results(1), results(1, result="nhwc"), window(5)):  # near, quickly computed, few
        assert ", 1);" not in generate_c(other).source


@pytest.mark.parametrize("made", [product(), image(), product(m=20), halves()], ids=["panels", "image", "uneven", "halves"])
def test_the_tiles_of_a_panel_ask_for_every_line_of_the_next_once_and_for_no_other(made: Program) -> None:
    """The expressions of the text, computed for every tile and step."""
    source = generate_c(made).source
    tiles = -(-made.tiles[2][0 if "gemm" in source else 1] // 4)
    asked = re.findall(r"const unsigned long (ahead_\d) = \(unsigned long\)\((.*)\)( \+ \d)?;", source)
    places = re.findall(r"__builtin_prefetch\((\w+) \+ (\d+) \+ (.*?)(?:, 0, 2)?\);", source)
    assert len(asked) == len(places) >= 1
    axis, rows = ("k", "m") if "gemm" in source else ("c", "k")
    steps = made.operator.extents[made.operator.reduce[0]]
    found = set()
    for tile in range(tiles):
        for step in range(steps):
            names = {rows: 4 * tile, axis: step}
            for (name, share, more), (_, start, place) in zip(asked, places, strict=True):
                line = eval(share.replace("/", "//"), {}, names) + int(more[3:] or 0)  # noqa: S307
                found.add(int(start) + eval(place.replace("/", "//"), {}, {name: line}))  # noqa: S307
    width = made.tiles[0][1] if axis == "k" else 32
    panel = [48 * width + 16 * line for line in range(48 * width // 16)]
    planes = [width + 256 * step + 16 * line for step in range(steps) for line in range(2)]
    wanted = {start + 15 for start in (panel if axis == "k" else planes)}
    assert wanted <= found
    assert len(found - wanted) <= 1 + (tiles < 2)  # what the last step asks for more than its share
    assert tiles <= MANY_TILES
    assert np.isfinite(list(found)).all()


def test_a_block_of_a_panel_asks_for_the_next_block() -> None:
    """The 64 tiles of a block of 4 channels ask for the 54 lines of the next 4 channels, 864 elements ahead."""
    share, = re.findall(r"ahead_0 = \(unsigned long\)\((.*)\);", generate_c(blocks()).source)
    start, = re.findall(r"__builtin_prefetch\(w \+ c_begin \* 216 \+ (\d+) \+ ahead_0 \* 16\);", generate_c(blocks()).source)
    at = [dict(p=p, q=q, c=c, c_begin=0, c_end=4) for p in (0, 4) for q in range(8) for c in range(4)]
    lines = {eval(share.replace("/", "//"), {}, names) for names in at}  # noqa: S307
    assert lines == set(range(54))
    assert int(start) == 4 * 9 * 24 + 15


def test_a_block_of_several_panels_asks_for_the_next_panel() -> None:
    """The next panel of 8 channels, 3x3, and 24 lanes begins 1728 elements ahead."""
    kernel = generate_c(blocks(48))
    start, = re.findall(r"__builtin_prefetch\(w \+ .* \+ (\d+) \+ ahead_0 \* 16\);", kernel.source)
    assert int(start) == 8 * 9 * 24 + 15
    check([kernel], 2)
