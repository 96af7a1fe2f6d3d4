"""The CPU model follows what code is generated: orders of programs that are sure without a clock."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gensor_gym import ConstructionGraph, hardware, operators
from gensor_gym.codegen.c.plan import make_plan
from gensor_gym.codegen.program import lower
from gensor_gym.cost.cpu.groups import group_of
from gensor_gym.cost.cpu.matrix import is_in_tiles, parts_of
from gensor_gym.cost.cpu.tiles import fill_effective
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import CONVOLUTION, MAX_AXES, PACK_A, PACK_B, SPATIAL_SLOTS, TILE
from gensor_gym.graph.tables.tables import VECTOR_SLOT
from tests.support.thorough import thorough_but


def _latency(text: str, tiles: str, knobs: str = "") -> float:
    graph = ConstructionGraph(text, "cascade_lake", "extended")
    schedule = Schedule.parse(f"tile[{tiles}] vthread[1x1x1x1x1x1x1x1] level=2 {knobs}".strip())
    assert graph.is_legal(schedule)
    return graph.latency(schedule)


def test_a_convolution_without_a_copy_carries_sums_through_the_output() -> None:
    conv = "conv2d(n=1, c=1024, h=14, w=14, k=256, r=1, s=1)"
    tiles = "1x1x4x4x8x{c}x1x1 1x1x64x8x8x{c}x1x1 1x1x64x8x8x{c}x1x1 1x1x64x8x8x{c}x1x1"
    short, long = (_latency(conv, tiles.replace("1x1x4x4x8x{c}", "1x1x4x4x8x1").format(c=c), "convolution=2") for c in (1, 256))
    assert short > 1.5 * long


def test_rows_a_page_apart_crowd_each_other_out() -> None:
    tiles = "1x1x1x1x16x16x1x1 " * 4
    near, far = (_latency(f"gemv(m=1024, k={k})", tiles.strip()) / k for k in (1040, 1024))
    assert far > near


def test_what_fits_whole_stays_from_call_to_call() -> None:
    graph = ConstructionGraph("gemm(m=32, n=32, k=32)", "cascade_lake")
    terms = graph.terms(Schedule.parse(f"tile[{('1x1x1x8x32x32x1x1 ' * 4).strip()}] vthread[1x1x1x1x1x1x1x1] level=2"))
    assert terms["dram"] == terms["cache"] == 0.0 < terms["arithmetic"]


def test_three_tasks_on_two_cores_take_as_long_as_four() -> None:
    """The third task has a core to itself while the other one waits."""
    assert hardware.get("cascade_lake").units == 2
    tiles = "1x1x1x4x32x1x1x1 1x1x1x16x512x128x1x1 1x1x1x16x512x512x1x1 1x1x1x16x512x512x1x1"
    two, three, four = (_latency(f"gemm(m={16 * tasks}, n=512, k=512)", tiles) for tasks in (2, 3, 4))
    assert three > 0.9 * four > 1.5 * two


GROUPED = (
    'gemm(m=24, n=40, k=36, dtype="int8")',
    'batched_gemm(b=2, m=9, n=20, k=37, dtype="int8")',
    'gemv(m=33, k=260, dtype="int8")',
    'conv2d(n=1, c=8, h=9, w=10, k=20, r=3, s=3, padding=1, dtype="int8")',
    'conv2d(n=1, c=6, h=4, w=5, k=12, r=1, s=1, dtype="int8")',
    'conv2d(n=1, c=8, h=4, w=5, k=12, r=3, s=3, padding=1, image="nhwc", dtype="int8")',
    'conv2d(n=1, c=8, h=9, w=10, k=20, r=3, s=3, groups=2, dtype="int8")',
    'depthwise_conv2d(n=1, c=6, h=9, w=9, r=3, s=3, dtype="int8")',
    'gemm(m=24, n=40, k=35, dtype="bfloat16")',
    'gemv(m=33, k=260, dtype="bfloat16")',
    'conv2d(n=1, c=8, h=9, w=10, k=20, r=3, s=3, padding=1, dtype="bfloat16")',
    'gemm(m=24, n=40, k=35, dtype="float16")',
    "gemv(m=33, k=260)",
)


@pytest.mark.parametrize("text", thorough_but(GROUPED, *GROUPED[1::3]))
def test_the_model_groups_what_the_generator_groups(text: str) -> None:
    """Products of int8 and bfloat16 in groups: random schedules, half of those of some with knobs that make groups likely."""
    graph, rng, found = ConstructionGraph(text, "cascade_lake", "extended"), np.random.default_rng(0), set()
    ints = graph.tables.ints
    for number in range(120):
        row = graph.random_schedule(rng).row.copy()
        if number % 2 and graph.operator.name == "conv2d":
            row[[CONVOLUTION, PACK_A, PACK_B]] = 1
        if number % 2 and graph.operator.name == "gemv":
            row[[PACK_A, PACK_B]] = 0
        if not graph.fits(row[None])[0]:
            continue
        effective, slot = np.zeros_like(row), ints[VECTOR_SLOT + row[CONVOLUTION]]
        fill_effective(row, slot, ints, effective)
        plan = make_plan(lower(graph.operator, Schedule(row), graph.hardware))
        group = plan.group
        axis = group - len(graph.operator.spatial) + SPATIAL_SLOTS if group >= 0 else -1
        assert group_of(row, slot, ints) == group_of(effective, slot, ints) == axis, str(Schedule(row))
        if group == plan.vector:
            levels = effective[TILE : TILE + 3 * MAX_AXES].reshape(3, MAX_AXES)[:, slot]
            assert levels.tolist() == [level[group] for level in plan.tiles]
        found.add(group >= 0)
    grouped = "int8" in text or "bfloat16" in text
    assert found == ({True, False} if grouped and "groups" not in text and "depthwise" not in text else {False})


@pytest.mark.parametrize("text, tile, knobs", [
    ("gemv(m=1024, k=1024{})", "1x1x1x1x8x16x1x1 1x1x1x1x64x1024x1x1 1x1x1x1x64x1024x1x1 1x1x1x1x64x1024x1x1", ""),
    ("conv2d(n=1, c=64, h=14, w=14, k=64, r=3, s=3, padding=1{})",
     "1x1x32x1x7x1x1x1 1x1x64x14x14x64x3x3 1x1x64x14x14x64x3x3 1x1x64x14x14x64x3x3", "convolution=1 pack_a=1 pack_b=1"),
])  # fmt: skip
def test_groups_of_four_take_less_time_than_float32(text: str, tile: str, knobs: str) -> None:
    plain, grouped = _latency(text.format(""), tile, knobs), _latency(text.format(', dtype="int8"'), tile, knobs)
    assert grouped < 0.6 * plain


TILED = (
    'gemm(m=80, n=96, k=200, dtype="bfloat16")',
    'conv2d(n=1, c=64, h=9, w=10, k=48, r=3, s=3, padding=1, dtype="bfloat16")',
    'gemm(m=40, n=96, k=192, dtype="int8")',
    'batched_gemm(b=3, m=37, n=64, k=96, dtype="bfloat16")',
    'conv2d(n=2, c=128, h=4, w=15, k=32, r=1, s=1, dtype="int8")',
    'conv2d(n=1, c=3, h=30, w=29, k=32, r=7, s=7, stride=2, padding=3, dtype="bfloat16")',
    'conv2d(n=1, c=24, h=9, w=10, k=16, r=3, s=3, padding=1, dtype="int8")',
    'conv2d(n=1, c=64, h=9, w=10, k=48, r=3, s=3, padding=1, image="nhwc", dtype="bfloat16")',
    'conv2d(n=1, c=64, h=9, w=10, k=48, r=1, s=1, image="nhwc", result="nhwc", dtype="int8")',
    'conv2d(n=1, c=144, h=5, w=9, k=24, r=1, s=1, image="nhwc", result="nhwc", dtype="bfloat16")',
    'conv2d(n=1, c=24, h=9, w=10, k=40, r=3, s=3, padding=1, image="nhwc", dtype="int8")',
    'conv2d(n=1, c=64, h=4, w=4, k=16, r=1, s=1, image="nhwc", result="nhwc", dtype="int8")',
    'conv2d(n=1, c=64, h=4, w=4, k=16, r=3, s=3, padding=1, image="nhwc", result="nhwc", dtype="int8")',
)
APART = 'conv2d(n=1, c=4, h=9, w=29, k=32, r=3, s=3, padding=1, dilation=2, dtype="bfloat16")'
"""Taps that are no neighbours."""


@pytest.mark.parametrize("text", thorough_but((*GROUPED, *TILED, APART), TILED[1], TILED[2], TILED[5], *TILED[-2:]))
def test_the_model_puts_in_tiles_what_the_generator_puts_in_tiles(text: str) -> None:
    """Random schedules, with knobs that make groups likely; a machine without tile registers has the same legal schedules."""
    plain = hardware.get("cascade_lake")
    machine = dataclasses.replace(plain, tensor_peak=(("bfloat16", 3e12), ("int8", 6e12)))
    graph, rng, found = ConstructionGraph(text, machine, "extended"), np.random.default_rng(0), set()
    ints, floats, joined = graph.tables.ints, graph.tables.floats, 0
    for _ in range(300):
        row = graph.random_schedule(rng).row.copy()
        row[[PACK_A, PACK_B]] = rng.integers(2), 1
        if graph.operator.name == "conv2d":
            row[[CONVOLUTION, PACK_A]] = 1, "padding" in text or rng.integers(2)
        if not graph.fits(row[None])[0]:
            continue
        effective, slot = np.zeros_like(row), ints[VECTOR_SLOT + row[CONVOLUTION]]
        fill_effective(row, slot, ints, effective)
        plan = make_plan(lower(graph.operator, Schedule(row), machine))
        assert is_in_tiles(effective, slot, ints, floats) == (plan.tiling is not None), str(Schedule(row))
        found.add(plan.tiling is not None)
        if plan.tiling:
            assert parts_of(effective, slot, ints) == (len(plan.tiling.parts), plan.tiling.parts[0][1]), str(Schedule(row))
            joined += bool(plan.tiling.pixels)
        assert make_plan(lower(graph.operator, Schedule(row), plain)).tiling is None
    assert True in found or text not in TILED
    assert joined or text not in TILED[-2:]


def test_tiles_take_less_time_and_lower_the_floor() -> None:
    op = operators.gemm(128, 768, 768, dtype="bfloat16")
    plain = hardware.get("cascade_lake")
    machine = dataclasses.replace(plain, tensor_peak=(("bfloat16", 30.0 * plain.peak_of("bfloat16")),))
    level = "1x1x1x16x32x1x1x1 1x1x1x128x32x768x1x1 1x1x1x128x768x768x1x1 1x1x1x128x768x768x1x1"
    schedule = Schedule.parse(f"tile[{level}] vthread[1x1x1x1x1x1x1x1] level=2 pack_b=1")
    tiled, vectors = (ConstructionGraph(op, one, "extended").terms(schedule)["arithmetic"] for one in (machine, plain))
    assert tiled < vectors / 20
    assert roofline_floor(op, machine) < 0.1 * roofline_floor(op, plain)
    spilling = schedule.row.copy()
    spilling[PACK_B] = 0
    assert ConstructionGraph(op, machine, "extended").terms(Schedule(spilling))["arithmetic"] > vectors
