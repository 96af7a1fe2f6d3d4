"""Schedules as values: text, JSON, pickle, equality; occupancy by hand."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gensor_gym.cost.gpu.gpu import resident_blocks
from gensor_gym.graph.compiled import plain
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.schedule import Schedule, make_row
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, MAX_LEVELS, ROW
from gensor_gym.measure import Status, measure
from tests.support.graph_walks import graph_of

_SIZES = st.integers(1, 1 << 20)
_TILES = st.lists(st.lists(_SIZES, min_size=MAX_AXES, max_size=MAX_AXES), min_size=MAX_LEVELS, max_size=MAX_LEVELS)
_KNOBS = st.fixed_dictionaries({}, optional={knob.name: st.sampled_from(knob.values) for knob in KNOBS})
SCHEDULES = st.builds(
    lambda tiles, vthread, level, knobs: Schedule(make_row(tiles, vthread, level, knobs)),
    _TILES,
    st.lists(_SIZES, min_size=MAX_AXES, max_size=MAX_AXES),
    st.integers(0, MAX_LEVELS - 1),
    _KNOBS,
)


@given(SCHEDULES)
@settings(max_examples=150, deadline=None)
def test_round_trips(schedule: Schedule) -> None:
    for again in (
        Schedule.parse(str(schedule)),
        Schedule.from_json(schedule.to_json()),
        pickle.loads(pickle.dumps(schedule)),
        copy.deepcopy(schedule),
        Schedule(np.frombuffer(schedule.key, dtype=np.int32)),
    ):
        assert again == schedule and hash(again) == hash(schedule) and again.key == schedule.key


@given(SCHEDULES, st.integers(0, ROW - 1))
@settings(max_examples=50, deadline=None)
def test_another_row_is_another_schedule(schedule: Schedule, place: int) -> None:
    row = schedule.row.copy()
    row[place] += 1
    assert Schedule(row) != schedule and Schedule(row).key != schedule.key and schedule != "schedule"


def test_a_schedule_cannot_be_changed() -> None:
    row = graph_of("gemm(m=64, n=48, k=40)", "h200", "gensor").initial().row.copy()
    schedule = Schedule(row)
    row[0] = 7
    assert schedule.tile[0, 0] == 1
    with pytest.raises(AttributeError, match="cannot be changed"):
        schedule.row = row
    with pytest.raises(ValueError, match="read-only"):
        schedule.tile[0, 0] = 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tile[1x1] vthread[1] level=0",
        "tile[1x1x1x1x1x1x1x1 1x1x1x1x1x1x1x1 1x1x1x1x1x1x1x1] vthread[1x1x1x1x1x1x1x1] level=0",
        "tile[axb] vthread[1] level=0",
    ],
)
def test_text_that_does_not_read_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="schedule"):
        Schedule.parse(text)


def test_bad_parts_are_named() -> None:
    good = str(graph_of("gemm(m=64, n=48, k=40)", "h200", "gensor").initial())
    with pytest.raises(ValueError, match="no knob 'speed'.*unroll"):
        Schedule.parse(good + " speed=3")
    with pytest.raises(ValueError, match="'unroll' has no value 3; it takes"):
        Schedule.parse(good.replace("unroll=4", "unroll=3"))
    with pytest.raises(ValueError, match=r"row of \d+ int32 values, got shape \(3,\)"):
        Schedule(np.ones(3))
    other = json.dumps(json.loads(Schedule.parse(good).to_json()) | {"layout": 0})
    with pytest.raises(ValueError, match="layout 0"):
        Schedule.from_json(other)


@pytest.mark.parametrize("index", [-1, 5, 1000])
def test_a_knob_out_of_range_is_named_and_shown(index: int) -> None:
    graph = graph_of("gemm(m=64, n=48, k=40)", "h200", "gensor")
    row = graph.initial().row.copy()
    row[KNOB + KNOB_INDEX["unroll"]] = index
    bad = Schedule(row)
    message = rf"knob 'unroll' has index {index}: expected 0 to 4, one of its \(1, 2, 4, 8, 16\)"
    with pytest.raises(ValueError, match=message):
        str(bad)
    with pytest.raises(ValueError, match=message):
        bad.knob("unroll")
    assert eval(repr(bad)) == bad
    measured = measure(graph.operator, bad, graph.hardware, "analytic")
    assert measured.status is Status.ILLEGAL and repr(bad) in measured.error


def _gemm(register: tuple[int, int], block: tuple[int, int], k: tuple[int, int]) -> Schedule:
    """A schedule of a gemm on a GPU: register and block tile, and k at both levels."""
    inner, outer = [1] * MAX_AXES, [1] * MAX_AXES
    inner[3:6], outer[3:6] = (*register, k[0]), (*block, k[1])
    return Schedule(make_row([inner, outer, outer, outer], [1] * MAX_AXES, 1))


@pytest.mark.parametrize(
    ("machine", "register", "block", "k", "blocks"),
    [
        # 256 threads, 32 + 64 + 2 (8 + 8) = 128 registers: 65536 / (128 * 256) = 2
        ("h200", (8, 8), (128, 128), (1, 8), 2),
        ("t4", (8, 8), (128, 128), (1, 8), 2),
        # 64 threads, 32 + 16 + 16 = 64 registers: 16 by registers; 32 by blocks; a T4 has 1024 threads and 16 blocks
        ("h200", (4, 4), (32, 32), (1, 8), 16),
        ("t4", (4, 4), (32, 32), (1, 8), 16),
        # 1024 threads, 37 registers -> 40: 65536 / 40960 = 1
        ("h200", (1, 1), (32, 32), (1, 8), 1),
        # one thread: as many blocks as there may be
        ("h200", (1, 1), (1, 1), (1, 1), 32),
        ("t4", (1, 1), (1, 1), (1, 1), 16),
        # 64 threads, shared memory 2 x 32 x 512 floats = 128 KiB, 1 KiB reserved: one of 228 KiB
        ("h200", (4, 4), (32, 32), (1, 512), 1),
    ],
)
def test_resident_blocks_by_hand(machine: str, register: tuple, block: tuple, k: tuple, blocks: int) -> None:
    graph = graph_of("gemm(m=1024, n=1024, k=1024)", machine, "gensor")
    schedule = _gemm(register, block, k)
    assert graph.is_legal(schedule)
    assert resident_blocks(plain(schedule.row), graph.tables.ints) == blocks
