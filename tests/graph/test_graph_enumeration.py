"""Enumeration against brute force and against walking the graph; compact spaces; ladders and the tables of knobs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gensor_gym import hardware, operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.actions import ACTIONS, NUM_ACTIONS, SPACES
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.ladder import COMPACT_STATES, cpu_sizes, ladders, sizes
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import LEVEL
from tests.support import oracle
from tests.support.graph_walks import OPERATORS, graph_of
from tests.support.oracle import Oracle

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
