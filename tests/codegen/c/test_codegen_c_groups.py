"""int8 gemv and convolutions in groups of four: exact on every instruction set and within their tensors."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gensor_gym import operators
from gensor_gym.codegen.c.codegen import generate_c
from gensor_gym.codegen.c.plan import make_plan
from gensor_gym.codegen.program import Program
from gensor_gym.hardware.cpuinfo import cpu_info
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator
from tests.codegen.c.test_codegen_c_dot import assert_exact
from tests.codegen.c.test_codegen_c_memory import run_kernel_between_guard_pages
from tests.support.apart import in_a_process_of_its_own
from tests.support.c_cases import ARCHES, machine, needs, program, random_tiles
from tests.support.gir_cases import sanitized_apart
from tests.support.thorough import thorough_but

LANES = {"x86-64": (4,), "haswell": (4, 8), "skylake-avx512": (8, 16), "native": (4, 8, 16)}


def gemv(seed: int, arch: str = "native", hw: Hardware | None = None, dtype: str = "int8") -> Program:
    """A product with a vector: lengths below, at and above the register tile's, blocks of the reduction, shares of threads."""
    rng = random.Random(seed)
    op = operators.gemv(rng.choice((1, 3, 7, 16, 33)), rng.choice((2, 3, 16, 31, 64, 65, 100, 257, 1000)), dtype=dtype)
    op = op.with_epilogue("bias", "relu") if rng.random() < 0.4 else op
    rows, width = rng.choice((1, 2, 3, 4, 6, 8)), rng.choice((1, 3, 4, 8, 16, 16, 24, 32, 48))
    l1 = (rows * rng.choice((1, 1, 2, 3)), width * rng.choice((1, 1, 2, 4)))
    task = (l1[0] * rng.choice((1, 2, 4)), l1[1] * rng.choice((1, 1, 2, 8)))
    knobs = {"unroll": rng.choice((1, 2, 4)), "prefetch": rng.choice((0, 4)), "thread_split": rng.choice((1, 1, 2, 4))}
    return program(op, (rows, width), l1, task, hw=hw or machine(rng.choice(LANES[arch]), arch), **knobs)


def convolution(seed: int, arch: str = "native", hw: Hardware | None = None, dtype: str = "int8") -> Program:
    """A direct convolution with vectors over channels and both operands packed: any stride, padding, blocks of channels."""
    rng = random.Random(seed)
    r, s = rng.choice((1, 2, 3, 5)), rng.choice((1, 2, 3, 7))
    op = operators.conv2d(
        n=rng.choice((1, 1, 2)), c=rng.choice((2, 3, 4, 8, 17, 33)), h=r + rng.choice((0, 4, 9)), w=s + rng.choice((1, 5, 31)),
        k=rng.choice((1, 3, 8, 16, 20, 40)), r=r, s=s, stride=(rng.choice((1, 2, 3)), rng.choice((1, 1, 2))),
        padding=(rng.randint(0, r // 2), rng.randint(0, s // 2)), dtype=dtype,
    )  # fmt: skip
    op = op.with_epilogue("bias", "relu") if rng.random() < 0.4 else op
    hw = hw or machine(rng.choice(LANES[arch]), arch)
    knobs = {"unroll": rng.choice((1, 2, 4)), "thread_split": rng.choice((1, 1, 2, 4)), "loop_order": rng.choice((0, 1))}
    tiles = random_tiles(rng, op, op.channel_axis, hw.lanes)
    return program(op, *tiles, hw=hw, convolution=1, pack_a=1, pack_b=1, **knobs)


KINDS = {"gemv": gemv, "convolution": convolution}
CASES = [(name, arch, block) for name in KINDS for arch in ARCHES for block in range(2)]


@pytest.mark.parametrize("name, arch, block", thorough_but(CASES, *((name, "native", 0) for name in KINDS)))
def test_random_programs_are_exact(name: str, arch: str, block: int) -> None:
    """At the ends of the range as well."""
    needs(arch)
    kernels = [generate_c(KINDS[name](seed, arch)) for seed in range(600 + 12 * block, 612 + 12 * block)]
    assert sum("dot_" in kernel.source for kernel in kernels) >= 9
    assert_exact(kernels)


@pytest.mark.thorough
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    arch = "haswell" if "avx2" in cpu_info().flags else "native"
    assert sanitized_apart(tmp_path, [generate_c(kind(seed, arch)) for kind in KINDS.values() for seed in (640, 641, 642)]) == ""


@pytest.mark.parametrize("name", thorough_but(KINDS, "gemv"))
def test_tensors_between_guard_pages(name: str) -> None:
    in_a_process_of_its_own(__name__, f"run_between_guard_pages({name!r})")


def run_between_guard_pages(name: str) -> None:
    for seed in range(600, 612):
        run_kernel_between_guard_pages(generate_c(KINDS[name](seed)))


def conv2d(c: int, **sizes: int) -> Operator:
    return operators.conv2d(n=1, c=c, h=8, w=9, k=16, r=3, s=3, padding=1, dtype="int8", **sizes)


ROW = (1, 16, 1, 4, 1, 1, 1)


def test_which_kernels_are_grouped() -> None:
    direct = {"convolution": 1, "pack_a": 1, "pack_b": 1}
    lanes = program(operators.gemv(16, 64, dtype="int8"), (4, 64), (4, 64), (8, 64))
    channels = program(conv2d(8), ROW, ROW, ROW, **direct)
    assert make_plan(lanes).groups_lanes and not make_plan(lanes).groups_channels
    assert make_plan(channels).groups_channels and not make_plan(channels).groups_lanes
    others = [
        program(operators.gemv(16, 64, dtype="int8"), (4, 64), (4, 64), (8, 64), pack_a=1),
        program(operators.gemv(16, 64), (4, 64), (4, 64), (8, 64)),
        program(operators.reduce_sum(16, 64, dtype="int8"), (4, 64), (4, 64), (8, 64)),
        program(conv2d(8), ROW, ROW, ROW, **(direct | {"pack_a": 0})),
        program(conv2d(1), ROW, ROW, ROW, **direct),  # nothing to group
        program(conv2d(8), (1, 1, 1, 16, 1, 1, 1), *[(1, 1, 1, 16, 8, 3, 3)] * 2, convolution=2, pack_a=1, pack_b=1),
        program(conv2d(8, groups=2), (1, 1, 8, 1, 4, 1, 1, 1), *[(1, 1, 8, 1, 4, 4, 3, 3)] * 2, **direct),
    ]
    assert [make_plan(other).group for other in others] == [-1] * len(others)


@pytest.mark.parametrize("window", [1, 3])
def test_shifted_products_go_element_by_element(window: int) -> None:
    op = operators.conv2d(n=1, c=8, h=7, w=9, k=20, r=window, s=window, padding=window // 2, dtype="int8")
    tiles = [(1, 4, 2, 8, 1, 1, 1), (1, 4, 2, 8, 4, 1, 1), (1, 8, 4, 16, 8, window, window)]
    assert_exact([program(op, *tiles, convolution=2, pack_a=1, pack_b=1)])


def test_filters_that_one_task_packs_for_later_calls_are_exact() -> None:
    """The entry that packs for a prepacked one."""
    kernel = generate_c(program(conv2d(6).freeze(), ROW, ROW, (1, 16, 4, 8, 8, 3, 3), convolution=1, pack_a=1, pack_b=1))
    assert "gg_prepacked" in kernel.source and "pack_filters(" in kernel.source
    assert_exact([kernel])
