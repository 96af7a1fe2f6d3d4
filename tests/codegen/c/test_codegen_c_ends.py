"""Convolutions with constant weights and channels last: shorter register tiles at the end of an axis, and copies of pixels."""

from __future__ import annotations

import dataclasses
import random
import re

import pytest

from gensor_gym import operators
from gensor_gym.codegen.c.codegen import generate_c
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import Program
from gensor_gym.measure.answers.expectation import make_draws
from gensor_gym.measure.devices.cpu import CpuDevice
from gensor_gym.measure.workers import trial
from gensor_gym.measure.workers.builders import build_c
from gensor_gym.measure.workers.requests import Built
from gensor_gym.operators.images import IMAGES
from gensor_gym.operators.text import with_arguments
from gensor_gym.operators.traits import weights
from tests.support.c_cases import check, machine, program, random_program
from tests.support.thorough import thorough_but

SMALL = (24, 4, 1)
"""Channels, lines and columns of a register tile."""


def seven(sizes: str = "n=1, h=7, w=7", register: tuple[int, ...] = SMALL, depth: int = 16, **tasks: int) -> Program:
    """A convolution of 16 to 40 channels with lanes along channels, in blocks of `depth` input channels; one task by default."""
    op = operators.parse(f'frozen conv2d({sizes}, c=16, k=40, r=3, s=3, padding=1, image="nhwc", result="nhwc")+bias')
    n, _, h, w = (op.extents[a] for a in op.spatial)
    k, p, q = register
    whole = (1, k, tasks.get("p", -(-h // p) * p), tasks.get("q", -(-w // q) * q))
    levels = (1, *register, 1, 1, 1), (*whole, depth, 3, 3), (*whole, 16, 3, 3)
    return program(op, *levels, hw=machine(lanes=8), convolution=1, pack_a=1, pack_b=1)


@pytest.mark.parametrize(
    "made",
    [
        seven(),
        seven(depth=4),
        seven(p=4, q=1),
        seven("n=2, h=7, w=7"),
        seven("n=1, h=5, w=11", (16, 1, 6)),
        seven("n=1, h=5, w=11", (16, 1, 6), q=6),
    ],
    ids=["one_task", "blocks", "tasks", "images", "columns", "tasks_of_columns"],
)
def test_the_last_tile_of_an_axis_has_the_rows_that_are_left(made: Program) -> None:
    kernel = generate_c(made)
    assert "register_tile_short(const" in kernel.source
    assert "register_tile_edge(const" not in kernel.source
    assert "_tile = " not in kernel.source.split("run_task")[1].replace("register_tile", "")
    check([kernel], 1)
    check([kernel], 2)


@pytest.mark.parametrize(
    "made",
    [
        seven("n=1, h=7, w=7", (24, 2, 2)),  # two axes have ends
        seven("n=1, h=8, w=8"),
        dataclasses.replace(seven(), operator=dataclasses.replace(seven().operator, frozen=False)),
    ],
    ids=["two_axes", "whole", "weights_vary"],
)
def test_other_tiles_are_not_shortened(made: Program) -> None:
    kernel = generate_c(made)
    assert "register_tile_short" not in kernel.source
    check([kernel], 2)


@pytest.mark.parametrize(("threads", "channels"), [(1, 64), (2, 32)])
def test_pixels_are_copied_with_all_channels_that_a_thread_copies(threads: int, channels: int) -> None:
    op = operators.parse('frozen conv2d(n=1, c=64, h=6, w=6, k=32, r=3, s=3, padding=1, image="nhwc")')
    tile, whole = (1, 16, 1, 6), (1, 16, 6, 6, 64, 3, 3)
    hw = dataclasses.replace(machine(), units=threads)
    kernel = generate_c(program(op, (*tile, 1, 1, 1), whole, whole, hw=hw, convolution=1, pack_a=1, pack_b=1))
    assert re.findall(r"Copies the box 1 x 8 x 8 x (\d+) of x", kernel.source) == [str(channels)]
    check([kernel], threads)


def shortened(seed: int) -> Kernel | None:
    """A random product or convolution with constant weights, in random orders, that has shorter tiles; None without them."""
    rng, made = random.Random(seed), random_program(seed, dtypes=("float32",))
    op, epilogue = made.operator, made.operator.epilogue
    if weights(op) is None:
        return None
    if op.name == "conv2d" and not epilogue and dict(op.arguments).get("groups", 1) == 1:
        op = with_arguments(op, image=rng.choice(IMAGES), result=rng.choice(IMAGES))
        op = op.with_epilogue(rng.choice(("relu", "residual")))
        made = made.with_knobs(convolution=1, pack_b=1)
    kernel = generate_c(dataclasses.replace(made, operator=op.freeze()))
    return kernel if "register_tile_short(const" in kernel.source else None


@pytest.mark.parametrize("seeds", thorough_but([range(600), range(600, 6000)], range(600)))
def test_random_programs_with_shorter_tiles_write_nothing_else(seeds: range) -> None:
    """Their buffers lie between guard words and unmapped pages."""
    device, found = CpuDevice(), [kernel for kernel in map(shortened, seeds) if kernel is not None]
    assert len(found) >= len(seeds) // 60
    for number, kernel in enumerate(found):
        loaded, draw = device.load(Built(kernel, build_c(kernel).path), 1 + number % 2), make_draws(kernel.operator, 0)[0]
        loaded.write(draw)
        loaded.time(1)
        assert trial.check(loaded, draw) == "", kernel.source
        loaded.close()
