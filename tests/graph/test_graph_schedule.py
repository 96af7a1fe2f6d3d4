"""Schedules as text and rows; all schedules of a space."""

from __future__ import annotations

import copy
import itertools
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gensor_gym import hardware, operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.gpu.gpu import resident_blocks
from gensor_gym.graph.actions import ACTIONS, NUM_ACTIONS, SPACES
from gensor_gym.graph.compiled import plain
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.ladder import COMPACT_STATES, cpu_sizes, ladders, sizes
from gensor_gym.graph.schedule import Schedule, make_row
from gensor_gym.graph.tables.layout import KNOB, LEVEL, MAX_AXES, MAX_LEVELS, ROW
from gensor_gym.measure import Status, measure
from tests.support import oracle
from tests.support.graph_walks import OPERATORS, graph_of
from tests.support.oracle import Oracle

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


TINY = [
    ("gemm(m=3, n=2, k=4)", "h200", "gensor"),
    ("gemm(m=3, n=2, k=4)", "t4", "gensor_no_vthread"),
    ("gemm(m=4, n=3, k=2)", "cascade_lake", "gensor"),
    ("gemv(m=2, k=2)", "h200", "extended"),
    ("gemv(m=2, k=2)", "cascade_lake", "extended"),
    ("max_pool2d(n=1, c=2, h=4, w=4, r=2, s=2, stride=2, padding=0)", "t4", "gensor"),
    ("reduce_sum(m=40, k=300)", "h200", "compact"),
    ("gemm(m=64, n=64, k=64)", "cascade_lake", "compact"),
    ("gemm(m=8, n=8, k=4)", "cascade_lake", "medium"),
    ("conv2d(n=1, c=2, h=4, w=5, k=3, r=2, s=1)", "cascade_lake", "medium"),
    ("gemm(m=8, n=4, k=3)", "h200", "medium"),
]


def reachable(graph: ConstructionGraph) -> set[bytes]:
    """Every schedule that the actions lead to from the start; asserts that all of them are legal."""
    frontier = graph.initial().row[None]
    seen = {graph.initial().key}
    while len(frontier):
        masks = graph.action_masks(frontier)
        masks[:, 0] = False
        found, actions = np.nonzero(masks)
        rows, legal = graph.transitions(frontier[found], actions)
        assert legal.all()
        fresh = {row.tobytes(): row for row in rows if row.tobytes() not in seen}
        seen |= set(fresh)
        frontier = np.stack(list(fresh.values())) if fresh else rows[:0]
    return seen


def with_all_levels(keys: set[bytes], levels: int) -> set[bytes]:
    return {key for key in keys if np.frombuffer(key, dtype=np.int32)[LEVEL] == levels - 1}


@pytest.mark.parametrize(("operator", "machine", "space"), TINY)
def test_enumeration_is_brute_force(operator: str, machine: str, space: str) -> None:
    """Batches of any size give every legal schedule once, and nothing else; all of them can be walked to."""
    graph = graph_of(operator, machine, space)
    slow = Oracle(graph.operator, graph.hardware, space)
    expected = {slow.write(state).key for state in slow.enumerate()}
    rows = np.concatenate(list(graph.enumerate()))
    keys = [row.tobytes() for row in rows]
    assert len(keys) == len(set(keys)) == len(expected) > 20
    assert set(keys) == expected
    assert all(graph.is_legal(Schedule(row)) for row in rows[:: max(1, len(rows) // 300)])
    small = np.concatenate(list(graph.enumerate(batch=7)))
    assert (small == rows).all()
    assert with_all_levels(reachable(graph), slow.levels) == expected


@pytest.mark.parametrize("machine", ["h200", "cascade_lake"])
def test_every_enumerated_schedule_of_a_larger_task_is_legal(machine: str) -> None:
    graph = graph_of("gemv(m=64, k=48)", machine, "gensor")
    rows = np.concatenate(list(graph.enumerate(batch=1000)))
    picked = rows[np.random.default_rng(0).choice(len(rows), 400, replace=False)]
    slow = Oracle(graph.operator, graph.hardware, "gensor")
    assert all(slow.is_legal(Schedule(row)) for row in picked)
    assert np.isfinite(graph.latencies(rows)).all()
    assert len({row.tobytes() for row in rows}) == len(rows)


BIG = ["roller/C0", "roller/C35", "roller/D3", "roller/E0", "ansor", "gensor_table5", "smoke"]


@pytest.mark.parametrize("name", BIG)
@pytest.mark.parametrize("machine", ["h200", "cascade_lake"])
def test_compact_spaces_are_small_and_closed(name: str, machine: str) -> None:
    for op in operators.resolve(name)[:12]:
        graph = ConstructionGraph(op, machine, space="compact")
        keys = reachable(graph)
        assert 1 < len(keys) <= COMPACT_STATES, str(op)
        enumerated = {row.tobytes() for batch in graph.enumerate() for row in batch}
        assert with_all_levels(keys, int(graph.tables.ints[1])) <= enumerated


@given(st.integers(1, 5000))
@settings(max_examples=150, deadline=None)
def test_sizes_are_the_oracles(extent: int) -> None:
    assert list(sizes(extent)) == oracle.sizes(extent)
    assert list(cpu_sizes(extent)) == oracle.cpu_sizes(extent)


def test_sizes_by_hand() -> None:
    assert sizes(1) == (1,)
    assert sizes(3) == (1, 2, 3, 4)
    assert sizes(7) == (1, 2, 4, 7, 8)
    assert sizes(12) == (1, 2, 3, 4, 6, 8, 12, 16)
    assert sizes(30) == (1, 2, 3, 4, 5, 6, 8, 10, 15, 16, 24, 30, 32)
    assert sizes(1000)[-4:] == (256, 500, 512, 1000)
    assert cpu_sizes(7) == (1, 2, 4, 6, 7, 8)
    assert cpu_sizes(1000)[-6:] == (256, 500, 512, 1000, 1002, 1008)
    assert max(sizes(1 << 24)) == 1 << 20


_EXTENT = st.integers(1, 180)


@given(
    st.one_of(
        st.builds(operators.batched_gemm, _EXTENT, _EXTENT, _EXTENT, _EXTENT),
        st.builds(
            lambda n, c, h, r: operators.max_pool2d(n, c, h + r, h + 2 * r, r, r, 1, 0),
            _EXTENT,
            _EXTENT,
            _EXTENT,
            st.integers(1, 9),
        ),
    ),
    st.sampled_from(["h200", "cascade_lake"]),
)
@settings(max_examples=40, deadline=None)
def test_compact_ladders_are_the_oracles(op: operators.Operator, machine: str) -> None:
    """Each ladder is a chain of divisors that begins with 1."""
    found = ladders(op, "compact", hardware.get(machine))
    assert [list(ladder) for ladder in found] == oracle.compact(list(op.extents), {"h200": 2, "cascade_lake": 3}[machine])
    for ladder in found:
        assert ladder[0] == 1 and all(b % a == 0 for a, b in itertools.pairwise(ladder))


@pytest.mark.parametrize("operator", OPERATORS)
def test_usable_values_of_knobs(operator: str) -> None:
    """What the tables allow is what the oracle allows; every value named usable was declared available."""
    from gensor_gym.graph.tables.tables import KNOB_BITS

    for machine in ("h200", "cascade_lake"):
        graph = graph_of(operator, machine, "extended")
        slow = Oracle(graph.operator, graph.hardware, "extended")
        for index, knob in enumerate(KNOBS):
            bits = int(graph.tables.ints[KNOB_BITS + index])
            usable = [value for i, value in enumerate(knob.values) if bits >> i & 1]
            assert usable == slow.usable[knob.name] and set(usable) <= set(knob.available)


def test_actions_are_one_list_and_spaces_are_parts_of_it() -> None:
    assert len(ACTIONS) == NUM_ACTIONS == len({str(action) for action in ACTIONS})
    assert str(ACTIONS[0]) == "stop" and {"tile[4]", "raise[split_k]", "cache"} <= {str(a) for a in ACTIONS}
    primitives = {action.primitive for action in ACTIONS}
    assert SPACES["extended"] == primitives
    assert all(part <= primitives and "stop" in part for part in SPACES.values())
    assert SPACES["tree"] < SPACES["gensor"] and SPACES["gensor_no_vthread"] < SPACES["gensor"]
