"""Rules of the construction graph against the oracle, and what must hold of every schedule."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gensor_gym
from gensor_gym import ConstructionGraph
from gensor_gym.graph.actions import ACTIONS, NUM_ACTIONS
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import LEVEL, ROW, VTHREAD
from gensor_gym.graph.tables.tables import HORIZON
from tests.support.graph_walks import MACHINES, OPERATORS, SPACES, graph_of, grown, of_damaged, walk
from tests.support.oracle import Oracle

PLAIN = ("gensor", "tree", "gensor_no_vthread")
"""Spaces with the ladders of `extended` and fewer actions: their masks are checked at the states of its walks."""


@pytest.mark.parametrize("operator", OPERATORS)
def test_masks_and_transitions_are_the_oracles(operator: str) -> None:
    rng = np.random.default_rng(1)
    for machine in MACHINES:
        for space in ("extended", "compact"):
            graph = graph_of(operator, machine, space)
            oracle = Oracle(graph.operator, graph.hardware, space)
            assert oracle.write(oracle.initial()) == graph.initial()
            for schedule in list(walk(graph, rng, 26))[::5]:
                state = oracle.read(schedule)
                assert oracle.is_legal(schedule) and graph.is_legal(schedule)
                after = [oracle.transition(state, action) for action in range(NUM_ACTIONS)]
                assert graph.action_mask(schedule).tolist() == [legal for _, legal in after], str(schedule)
                rows = np.repeat(schedule.row[None], NUM_ACTIONS, axis=0)
                results, legal = graph.transitions(rows, np.arange(NUM_ACTIONS))
                assert legal.tolist() == [legal for _, legal in after]
                assert [Schedule(row) for row in results] == [oracle.write(s) for s, _ in after]


@pytest.mark.parametrize("operator", OPERATORS[::2])
@pytest.mark.parametrize("space", PLAIN)
def test_masks_of_smaller_spaces_are_the_oracles(operator: str, space: str) -> None:
    rng = np.random.default_rng(2)
    for machine in ("h200", "cascade_lake"):
        graph = graph_of(operator, machine, space)
        oracle = Oracle(graph.operator, graph.hardware, space)
        for schedule in list(walk(graph, rng, 26))[::6]:
            assert graph.action_mask(schedule).tolist() == oracle.mask(oracle.read(schedule))


@pytest.mark.parametrize("operator", OPERATORS)
def test_legality_of_damaged_schedules_is_the_oracles(operator: str) -> None:
    rng, values = np.random.default_rng(3), (-1, 0, 1, 2, 3, 4, 5, 6, 8, 16, 20, 64)
    graphs = [graph_of(operator, machine, "extended") for machine in MACHINES]
    verdicts = [one for graph in graphs for one in of_damaged(graph, list(walk(graph, rng, 40))[::8], 12, values, rng)]
    assert 0.02 < np.mean(verdicts) < 0.98


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("machine", ["h200", "t4", "cascade_lake"])
def test_masks_at_the_limits_are_the_oracles(operator: str, machine: str) -> None:
    """Programs that grew until hardly anything is legal any more: every limit is met from both sides."""
    rng = np.random.default_rng(13)
    graph = graph_of(operator, machine, "extended")
    oracle = Oracle(graph.operator, graph.hardware, "extended")
    for opens in (0.03, 0.1, 0.3):
        for schedule in grown(graph, rng, opens)[-3:]:
            assert graph.action_mask(schedule).tolist() == oracle.mask(oracle.read(schedule)), str(schedule)


def test_resources_are_the_oracles() -> None:
    from gensor_gym.graph import resources

    rng = np.random.default_rng(4)
    for operator in OPERATORS:
        for machine in ("t4", "cascade_lake"):
            graph = graph_of(operator, machine, "extended")
            oracle = Oracle(graph.operator, graph.hardware, "extended")
            ints = graph.tables.ints
            for schedule in list(walk(graph, rng, 60))[::9]:
                state, row = oracle.read(schedule), schedule.row
                if machine == "t4":
                    assert resources.threads_of(row, ints) == oracle.threads(state)
                    assert resources.registers_of(row, ints) == oracle.registers(state)
                    assert resources.shared_bytes_of(row, ints) == oracle.shared_bytes(state)
                else:
                    along, accumulators = oracle.vectors(state)
                    assert resources.vectors_along(row, ints) == along
                    assert resources.accumulators_of(row, ints) == accumulators
                    for level in range(3):
                        assert resources.tile_bytes(row, level, ints) == oracle.tile_bytes(state, level)


def _undo(action: int) -> int:
    """The action that takes an action back."""
    pairs = {"tile": "inverse_tile", "cache": "inverse_cache", "set_vthread": "inverse_vthread", "raise": "lower"}
    pairs |= {back: there for there, back in pairs.items()}
    wanted = (pairs[ACTIONS[action].primitive], ACTIONS[action].axis, ACTIONS[action].knob)
    return next(i for i, a in enumerate(ACTIONS) if (a.primitive, a.axis, a.knob) == wanted)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("space", ["gensor", "extended", "compact"])
def test_every_legal_action_changes_something_and_can_be_undone(operator: str, space: str) -> None:
    rng = np.random.default_rng(5)
    for machine in MACHINES:
        graph = graph_of(operator, machine, space)
        for schedule in list(walk(graph, rng, 40))[::4]:
            legal = np.flatnonzero(graph.action_mask(schedule))[1:]
            there, _ = graph.transitions(np.repeat(schedule.row[None], len(legal), axis=0), legal)
            assert all((row != schedule.row).any() for row in there)
            assert all(graph.is_legal(Schedule(row)) for row in there)
            back, allowed = graph.transitions(there, np.array([_undo(int(a)) for a in legal], dtype=np.int64))
            assert allowed.all() and (back == schedule.row).all()


@pytest.mark.parametrize("operator", OPERATORS[::3])
def test_a_tree_never_goes_back(operator: str) -> None:
    rng = np.random.default_rng(6)
    for machine in MACHINES:
        path = list(walk(graph_of(operator, machine, "tree"), rng, 60))
        for before, after in zip(path, path[1:], strict=False):
            assert (after.row >= before.row).all() and after != before


@pytest.mark.parametrize("machine", MACHINES)
def test_illegal_actions_and_stop_return_the_schedule(machine: str) -> None:
    rng = np.random.default_rng(7)
    graph = graph_of(OPERATORS[0], machine, "gensor")
    for schedule in walk(graph, rng, 20):
        mask = graph.action_mask(schedule)
        assert mask[0] and graph.transition(schedule, 0) is schedule
        for action in np.flatnonzero(~mask):
            assert graph.transition(schedule, int(action)) is schedule
        for action in (-1, NUM_ACTIONS, 10**6):
            assert graph.transition(schedule, action) is schedule


@pytest.mark.parametrize("machine", MACHINES)
def test_batches_are_single_schedules_side_by_side(machine: str) -> None:
    rng = np.random.default_rng(8)
    graph = graph_of(OPERATORS[5], machine, "extended")
    schedules = list(walk(graph, rng, 50))
    rows = graph.stack(schedules)
    actions = rng.integers(0, NUM_ACTIONS, len(rows))
    masks, seconds = graph.action_masks(rows), graph.latencies(rows)
    results, legal = graph.transitions(rows, actions)
    for i, schedule in enumerate(schedules):
        assert masks[i].tolist() == graph.action_mask(schedule).tolist()
        assert seconds[i] == graph.latency(schedule)
        assert Schedule(results[i]) == graph.transition(schedule, int(actions[i]))
        assert legal[i] == masks[i][actions[i]]
    assert graph.stack([]).shape == (0, ROW)


def test_successors_are_the_legal_transitions() -> None:
    graph = graph_of(OPERATORS[0], "h200", "extended")
    for schedule in walk(graph, np.random.default_rng(9), 10):
        found = graph.successors(schedule)
        assert sorted(found) == np.flatnonzero(graph.action_mask(schedule))[1:].tolist()
        assert all(graph.transition(schedule, action) == after for action, after in found.items())


@pytest.mark.parametrize("operator", OPERATORS)
def test_latency_is_finite_and_terms_are_parts_of_it(operator: str) -> None:
    rng = np.random.default_rng(10)
    for machine in MACHINES:
        graph = graph_of(operator, machine, "extended")
        for schedule in list(walk(graph, rng, 60))[::6]:
            seconds, terms = graph.latency(schedule), graph.terms(schedule)
            assert math.isfinite(seconds) and seconds > 0.0
            assert all(math.isfinite(term) and 0.0 <= term <= seconds * (1 + 1e-9) for term in terms.values()), terms


def test_latency_of_an_illegal_schedule_is_infinite() -> None:
    graph = graph_of("gemm(m=4096, n=4096, k=1024)+bias+relu", "h200", "gensor")
    row = graph.initial().row.copy()
    row[:VTHREAD] = np.tile([1, 1, 1, 64, 64, 1, 1, 1], 4)  # 4096 accumulators in one thread
    assert graph.latency(Schedule(row)) == math.inf and graph.latencies(row[None])[0] == math.inf
    row[LEVEL] = 5
    assert graph.latency(Schedule(row)) == math.inf


@pytest.mark.parametrize("space", SPACES)
def test_random_schedules_are_legal_and_repeatable(space: str) -> None:
    for machine in MACHINES:
        graph = graph_of(OPERATORS[5], machine, space)
        drawn = [graph.random_schedule(np.random.default_rng(seed)) for seed in range(5)]
        assert all(graph.is_legal(schedule) for schedule in drawn)
        assert drawn == [graph.random_schedule(np.random.default_rng(seed)) for seed in range(5)]
        assert len(set(drawn)) > 1


def test_the_horizon_lets_a_walk_reach_the_outermost_level() -> None:
    for operator in OPERATORS:
        for machine in MACHINES:
            graph = graph_of(operator, machine, "extended")
            assert graph.horizon == graph.tables.ints[HORIZON] > 2 * graph.tables.ints[1]


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="no space 'gensr'.*'gensor'"):
        ConstructionGraph(OPERATORS[0], "h200", space="gensr")
    with pytest.raises(ValueError, match="h2000.*h200"):
        ConstructionGraph(OPERATORS[0], "h2000")
    with pytest.raises(ValueError, match="gem"):
        ConstructionGraph("gem(m=1)", "h200")
    with pytest.raises(ValueError, match="operator 3"):
        ConstructionGraph(3)
    with pytest.raises(ValueError, match="batch is 0"):
        graph_of(OPERATORS[0], "h200", "compact").enumerate(batch=0)
    with pytest.raises(ValueError, match="schedule 'tile': expected a Schedule"):
        gensor_gym.build("gemm(m=4, n=4, k=4)", "tile", "host")
    with pytest.raises(ValueError, match="expected a Schedule"):
        gensor_gym.measure("gemm(m=4, n=4, k=4)", "tile", "h200", backend="analytic")


SCRIPT = """
import hashlib, numpy as np
from tests.support.graph_walks import graph_of, walk
text = hashlib.sha256()
for operator, machine in (("gemm(m=64, n=48, k=40)", "t4"), ("max_pool2d(n=1, c=4, h=8, w=8, r=2, s=2, stride=2, padding=0)", "cascade_lake")):
    graph = graph_of(operator, machine, "extended")
    for schedule in walk(graph, np.random.default_rng(0), 12):
        text.update(schedule.key + graph.action_mask(schedule).tobytes() + repr(round(graph.latency(schedule) * 1e9, 6)).encode())
print(text.hexdigest())
"""  # noqa: E501


def test_without_compilation_the_rules_are_the_same() -> None:
    def run(**environment: str) -> str:
        command = [sys.executable, "-c", SCRIPT]
        root = Path(__file__).resolve().parents[2]
        variables = os.environ | {"PYTHONPATH": str(root)} | environment
        return subprocess.run(command, env=variables, cwd=root, capture_output=True, text=True, check=True).stdout

    assert run(NUMBA_DISABLE_JIT="1") == run() != ""


def test_what_is_no_schedule_of_the_task_harms_nothing() -> None:
    """The compiled rules check no bounds, so the face in front of them does: garbage is illegal and has no moves."""
    graph = graph_of(OPERATORS[0], "h200", "extended")
    good = graph.initial()
    level, other = good.row.copy(), graph_of(OPERATORS[0], "cascade_lake", "extended").initial().row.copy()
    level[LEVEL], other[VTHREAD] = 9, 3
    for row in (np.zeros(ROW), np.full(ROW, -7), np.full(ROW, 2**31 - 1), level, other):
        bad = Schedule(row)
        assert not graph.is_legal(bad) and graph.latency(bad) == math.inf
        assert np.flatnonzero(graph.action_mask(bad)).tolist() == [0]
        assert all(graph.transition(bad, action) == bad for action in (-1, 0, 1, 17, NUM_ACTIONS))
        with pytest.raises(ValueError, match="not a legal schedule"):
            gensor_gym.build(graph.operator, bad, "h200")
        if bad != Schedule(other):
            with pytest.raises(ValueError, match="no schedule"):
                graph.terms(bad)
