"""The CPU model follows what code is generated: orders of programs that are sure without a clock."""

from __future__ import annotations

from gensor_gym import ConstructionGraph, hardware
from gensor_gym.graph.schedule import Schedule


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
