"""Programs of float32 convolutions with channels last: which are tried, in which order, and that those in blocks are right."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from agents.gensor.channels_last import CACHES, corrected, has_channels_last, ranked_programs
from agents.gensor.markov import Markov
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.knobs import KNOB_INDEX
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, TILE
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.records.verified import verified
from gensor_gym.networks.orders.tilings import filled_registers, in_blocks, with_columns_of_taps
from tests.support.c_cases import machine

CHANNELS, DOWN, ACROSS, INPUTS, TAPS = 2, 3, 4, 5, 6
"""Columns, in a level of tiles, of channels, of the result's rows and columns, of input channels, and of the window's rows."""
FEW = Markov(walkers=4, steps=8, refiners=0, descents=1)


def with_l2(size: int, lanes: int = 16, cores: int = 1) -> Hardware:
    """A CPU of one core, or more, with an L2 cache of a size in bytes."""
    made = machine(lanes)
    levels = [dataclasses.replace(level, capacity=size) if level.name == "l2" else level for level in made.memory]
    return dataclasses.replace(made, memory=tuple(levels), units=cores)


def graph(l2: int = 2**20, lanes: int = 16, cores: int = 1, **sizes: Any) -> ConstructionGraph:
    """The task of a convolution of a network, with relu, that reads and writes channels last."""
    asked = {"n": 1, "c": 64, "h": 14, "w": 14, "k": 64, "r": 3, "s": 3, "padding": 1, "image": "nhwc", "result": "nhwc", **sizes}
    op = dataclasses.replace(operators.conv2d(**asked).with_epilogue("relu"), frozen=True)
    return ConstructionGraph(op, with_l2(l2, lanes, cores), "extended")


def level(rows: np.ndarray, index: int) -> np.ndarray:
    """Tile sizes of programs at a level: [P, axes]."""
    return rows[:, TILE + index * MAX_AXES : TILE + (index + 1) * MAX_AXES]


def test_only_channels_last_with_constant_weights_are_meant() -> None:
    assert has_channels_last(graph())
    assert has_channels_last(graph(result="nchw")) and has_channels_last(graph(image="nchw"))
    for other in (graph(image="nchw", result="nchw"), graph(dtype="bfloat16")):
        assert not has_channels_last(other)
    plain = graph()
    assert not has_channels_last(ConstructionGraph(dataclasses.replace(plain.operator, frozen=False), plain.hardware, "extended"))


def test_near_weights_are_read_whole_by_tiles_with_and_without_unrolled_taps() -> None:
    made = graph()
    rows, seconds = ranked_programs(made)
    assert len(rows) == len(seconds) and all(made.is_legal(Schedule(row)) for row in rows)
    assert (level(rows, 1)[:, INPUTS] == 64).all() and set(level(rows, 0)[:, TAPS]) == {1, 3}
    found = FEW.construct(made, np.random.default_rng(0))
    assert found.latencies[0] == pytest.approx(seconds.min()) and found.visited == 0


@pytest.mark.parametrize(("cores", "lines"), [(1, 14), (2, 7), (4, 4)])
def test_cores_share_the_lines_of_all_channels(cores: int, lines: int) -> None:
    made = graph(cores=cores)
    rows = filled_registers(made)
    task = level(rows, 2)
    alone = level(rows, 0)[:, DOWN] == 1
    assert {*task[alone & (task[:, CHANNELS] >= 64), DOWN]} == {14, lines}
    assert {*task[alone & (task[:, CHANNELS] <= 32), DOWN]} == {14}
    best = rows[made.latencies(rows).argmin()]
    count = -(-64 // best[TILE + 2 * MAX_AXES + CHANNELS]) * -(-14 // best[TILE + 2 * MAX_AXES + DOWN])
    assert count >= cores, "no core is idle"


@pytest.mark.parametrize(
    ("batch", "cores", "tasks"), [(8, 8, (1, 14, 64)), (2, 8, (1, 4, 64)), (1, 64, (1, 1, 32))]
)
def test_cores_share_images_and_lines_and_if_there_are_few_channels(batch: int, cores: int, tasks: tuple[int, ...]) -> None:
    made = graph(cores=cores, n=batch)
    rows = filled_registers(made)
    assert tasks in {tuple(map(int, row)) for row in level(rows, 2)[:, [0, DOWN, CHANNELS]]}
    best = level(rows[made.latencies(rows).argmin()][None], 2)[0]
    count = -(-batch // best[0]) * -(-64 // best[CHANNELS]) * -(-14 // best[DOWN])
    assert count >= min(cores, 28), "few cores are idle"


def test_far_weights_are_read_in_blocks_alone() -> None:
    weights = 4 * 64 * 64 * 9
    assert (level(ranked_programs(graph(weights // CACHES))[0], 1)[:, INPUTS] == 64).all()
    made = graph(weights // CACHES - 4)
    rows, _ = ranked_programs(made)
    register, inner = level(rows, 0), level(rows, 1)
    assert len(rows) and (inner[:, INPUTS] < 64).all() and not rows[:, KNOB + KNOB_INDEX["loop_order"]].any()
    l1 = next(one.capacity for one in made.hardware.memory if one.name == "l1")
    assert (4 * 9 * inner[:, INPUTS] * register[:, CHANNELS] <= 2 * l1 // 5).all()
    sums, least = 4 * register[:, CHANNELS] * inner[:, DOWN] * inner[:, ACROSS], 4 * register[:, : ACROSS + 1].prod(axis=1)
    assert (sums <= np.maximum(l1 // 2, 14 * least)).all()
    assert {FEW.construct(made, np.random.default_rng(0)).schedules[0].row.tobytes()} <= {row.tobytes() for row in rows}


def test_without_avx512_walks_go_on_if_there_are_no_taps() -> None:
    plain = graph(lanes=8, r=1, s=1, padding=0)
    assert not len(ranked_programs(plain)[0]) and len(ranked_programs(graph(lanes=8))[0])
    assert FEW.construct(plain, np.random.default_rng(0)).visited > 0


def test_few_pixels_are_walked() -> None:
    made = graph(h=1, w=1, r=1, s=1, padding=0)
    assert not len(ranked_programs(made)[0]) and FEW.construct(made, np.random.default_rng(0)).schedules


def test_large_results_are_stored_pixel_by_pixel() -> None:
    """The best program of a large result has the loop over channels inside, and at most two pixels of a line."""
    near, far = (graph(l2, c=64, h=56, w=56, k=256, r=1, s=1, padding=0) for l2 in (2**24, 2**20))
    for made, inside in ((near, False), (far, True)):
        rows, seconds = ranked_programs(made)
        best = rows[seconds.argmin()]
        assert (best[KNOB + KNOB_INDEX["loop_order"]] == 1 and level(best[None], 2)[0, CHANNELS] >= 256) or not inside
        assert level(best[None], 0)[0, ACROSS] <= 2 or not inside
    rows = filled_registers(far)
    assert (corrected(rows, far.latencies(rows), far) / corrected(rows, near.latencies(rows), near) >= 0.99).all()


@pytest.mark.parametrize("stride, size", [(1, 7), (2, 14), (1, 14)])
def test_programs_in_blocks_are_right(stride: int, size: int) -> None:
    """Of a convolution whose channels are cut in parts, with a remainder of channels and pixels that tiles compute twice."""
    made = graph(c=32, h=size, w=size, k=48, stride=stride)
    rows = with_columns_of_taps(made, filled_registers(made))
    some = in_blocks(made, rows)
    assert len(some) > 8
    for row in some[:: max(1, len(some) // 6)]:
        assert verified(made.operator, Schedule(row), made.hardware)
