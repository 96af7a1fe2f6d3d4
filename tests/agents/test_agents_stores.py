"""Stores of quantised pixels in the traverser's ranking: what they cost by the register tile, and only where they exist."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from agents.gensor.markov import Markov, MarkovExtended
from agents.gensor.stores import store_seconds, stores_of
from gensor_gym import hardware, operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.session import Budget, BudgetSpent, Session, Task
from gensor_gym.networks.orders.tilings import LEAST, filled_registers, filling_tiles, fills_lines

IMAGE = 'frozen conv2d(n=1, c=64, h=8, w=56, k=64, r=1, s=1, dtype="int8")'
QUANTISED = f"{IMAGE}+dequantize+bias+quantize"


def graph(text: str, machine: str = "cascade_lake") -> ConstructionGraph:
    return ConstructionGraph(operators.parse(text), hardware.get(machine), "extended")


def tiled(pixels: int, knob: str = "convolution=1 pack_a=1 pack_b=1") -> np.ndarray:
    """Program of `QUANTISED` with register tiles of 16 channels and some pixels of a row."""
    inner, outer = f"1x1x16x1x{pixels}x4x1x1", "1x1x64x8x56x64x1x1"
    return Schedule.parse(f"tile[{inner} {inner} {outer} {outer}] vthread[{'x'.join('1' * 8)}] level=2 {knob}").row


@pytest.mark.parametrize("pixels, count", [(1, 2), (2, 1), (3, 2), (7, 2), (8, 1), (14, 2), (16, 1), (28, 3), (32, 2), (56, 4)])
def test_runs_of_pixels_take_one_store_or_two(pixels: int, count: int) -> None:
    assert stores_of(pixels) == count


def test_longer_runs_take_fewer_seconds_and_residuals_as_many_again() -> None:
    made, rows = graph(QUANTISED), np.stack([tiled(pixels) for pixels in (1, 2, 4, 8)])
    machine = dataclasses.replace(made.hardware)
    expected = 64 * 8 * 56 * np.array([2, 1 / 2, 1 / 4, 1 / 8]) / (machine.clock * machine.units)
    assert np.allclose(store_seconds(rows, made), expected, rtol=1e-12)
    residual = graph(f"{IMAGE}+dequantize+bias+residual_int8+scale+quantize")
    assert np.allclose(store_seconds(rows, residual), 2 * expected, rtol=1e-12)


@pytest.mark.parametrize("text, machine", [
    (IMAGE, "cascade_lake"), (IMAGE.replace(', dtype="int8"', ""), "cascade_lake"),
    (f"{IMAGE}+dequantize", "cascade_lake"), (QUANTISED, "h100"),
    ('gemm(m=8, n=64, k=64, dtype="int8")+dequantize+quantize', "cascade_lake"), (IMAGE, "h100"),
    ('max_pool2d(n=1, c=64, h=8, w=56, r=3, s=3, padding=1, dtype="int8")+dequantize+quantize', "cascade_lake"),
])  # fmt: skip
def test_other_results_have_no_such_stores(text: str, machine: str) -> None:
    assert not store_seconds(np.stack([tiled(1), tiled(8)]), graph(text, machine)).any()


def test_pixels_as_lanes_have_no_such_stores() -> None:
    assert not store_seconds(tiled(16, "convolution=0")[None], graph(QUANTISED)).any()


def test_the_ranking_counts_stores() -> None:
    made, few = graph(QUANTISED), MarkovExtended(walkers=8, steps=48, refiners=4, refine_steps=32, descents=4, columns=2)
    found = few.construct(made, np.random.default_rng(0))
    rows = np.stack([schedule.row for schedule in found.schedules])
    assert np.allclose(found.latencies, made.latencies(rows) + store_seconds(rows, made), rtol=1e-9)
    assert list(found.latencies) == sorted(found.latencies) and store_seconds(rows, made).any()


@pytest.mark.parametrize("image", ["h=7, w=7", "h=56, w=56", "h=14, w=14"])
def test_filled_registers_are_legal_programs_that_no_register_tile_exceeds(image: str) -> None:
    made = graph(QUANTISED.replace("h=8, w=56", image))
    rows = filled_registers(made)
    assert len(rows) > 20 and all(made.is_legal(Schedule(row)) for row in rows)
    channels, down, across = rows[:, 2], rows[:, 3], rows[:, 4]
    accumulators = channels // 16 * down * across
    assert accumulators.min() >= LEAST and (accumulators + channels // 16 + 1).max() <= 32
    assert 7 in across and 48 in channels


def test_the_ranking_begins_no_later_than_a_program_that_fills_the_registers() -> None:
    made, few = graph(QUANTISED.replace("h=8, w=56", "h=7, w=7")), MarkovExtended(walkers=4, steps=8, refiners=0, columns=0)
    rows, found = filled_registers(made), few.construct(made, np.random.default_rng(0))
    assert found.latencies[0] <= (made.latencies(rows) + store_seconds(rows, made)).min() * (1 + 1e-9)


@pytest.mark.parametrize("size, pixels", [(7, 7), (13, 13), (27, 9), (56, 14)])
def test_the_third_trial_of_constant_weights_takes_whole_lines(size: int, pixels: int) -> None:
    """After the best program of each of two structures, unless one of these does."""
    text = f"frozen conv2d(n=1, c=64, h={size}, w={size}, k=96, r=3, s=3, padding=1)+bias+relu"
    task, few = Task.of(text, "cascade_lake", "analytic"), Markov(walkers=8, steps=32, refiners=4, refine_steps=16, descents=4)
    session = Session(task, Budget(trials=3))
    with pytest.raises(BudgetSpent):
        few.search(session, np.random.default_rng(0))
    tried = [session.graph.parse(row.schedule) for row in session.trace]
    lines = [schedule for schedule in tried if fills_lines(session.graph, schedule)]
    assert lines and int(lines[0].tile[0, 2]) == 32 and size % int(lines[0].tile[0, 4]) == 0
    assert any(int(row[4]) == pixels for row in filled_registers(session.graph))


LAST = 'frozen conv2d(n=1, c=64, h={0}, w={0}, k=96, r={1}, s={1}{2}, dtype="int8", image="nhwc", result="nhwc")'


@pytest.mark.parametrize("size, taps, padding, tiles", [
    (7, 3, ", padding=1", [(16, 7, 7), (16, 7, 7)]), (14, 1, "", [(32, 2, 14), (32, 2, 14)]),
    (7, 1, ", stride=2", [(32, 4, 4), (32, 4, 4)]),
])  # fmt: skip
def test_the_first_trials_fill_tile_registers(size: int, taps: int, padding: str, tiles: list[tuple[int, ...]]) -> None:
    """With all pixels, or in a square; channels or pixels in the outer loop. Without constant weights or such registers, none."""
    plain = hardware.get("cascade_lake")
    machine = dataclasses.replace(plain, tensor_peak=(("int8", 6e12),))
    op = operators.parse(f"{LAST.format(size, taps, padding)}+dequantize+bias+quantize")
    few = MarkovExtended(walkers=4, steps=8, refiners=0, descents=0, columns=0)
    session = Session(Task(op, machine, "analytic", "extended"), Budget(trials=2))
    with pytest.raises(BudgetSpent):
        few.search(session, np.random.default_rng(0))
    tried = [session.graph.parse(row.schedule) for row in session.trace]
    assert [tuple(map(int, schedule.tile[0, 2:5])) for schedule in tried] == tiles
    assert {schedule.knob("loop_order") for schedule in tried} == {0, 1}
    found = few.construct(session.graph, np.random.default_rng(0)).schedules
    for other in (ConstructionGraph(op, plain, "extended"), ConstructionGraph(dataclasses.replace(op, frozen=False), machine)):
        assert not filling_tiles(other, found)


def test_far_weights_are_read_in_the_outer_loop() -> None:
    machine = dataclasses.replace(hardware.get("cascade_lake"), tensor_peak=(("int8", 6e12),))
    op = operators.parse(f"{LAST.format(14, 1, '').replace('k=96', 'k=2048')}+dequantize+bias+quantize")
    made, few = ConstructionGraph(op, machine, "extended"), MarkovExtended(walkers=4, steps=8, refiners=0, descents=0, columns=0)
    first = filling_tiles(made, few.construct(made, np.random.default_rng(0)).schedules)
    assert len(first) > 4 and not any(schedule.knob("loop_order") for schedule in first)
    assert tuple(map(int, first[0].tile[0, 2:5])) == (32, 2, 14)


@pytest.mark.parametrize("tile, whole", [
    ("1x1x32x1x13", True), ("1x1x16x1x13", False), ("1x1x32x13x1", False), ("1x1x32x1x8", False), ("1x1x48x1x13", False),
    ("1x1x32x2x13", False), ("1x1x32x1x1", False),
])  # fmt: skip
def test_lines_are_whole_or_equal_parts(tile: str, whole: bool) -> None:
    made = ConstructionGraph(operators.parse("frozen conv2d(n=1, c=8, h=13, w=13, k=96, r=1, s=1)"), hardware.get("cascade_lake"))
    levels = " ".join([f"{tile}x1x1x1"] * 4)
    text = f"tile[{levels}] vthread[{'x'.join('1' * 8)}] level=2 convolution=1 pack_b=1"
    assert fills_lines(made, Schedule.parse(text)) == whole
    assert not fills_lines(made, Schedule.parse(text.replace("convolution=1", "convolution=2")))


def test_few_channels_and_pixels_fill_no_registers() -> None:
    made = graph(QUANTISED.replace("h=8, w=56, k=64", "h=1, w=2, k=8"))
    assert filled_registers(made).shape == (0, made.initial().row.size)
    assert MarkovExtended(walkers=4, steps=8, refiners=0, columns=0).construct(made, np.random.default_rng(0)).schedules
