"""Masks of `moves="columns"` are exact: an action is legal where it changes the program into one that fits, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym import ConstructionGraph, hardware, operators
from gensor_gym.env.construct import ConstructEnv
from gensor_gym.env.vector import ConstructVectorEnv
from gensor_gym.graph.actions import STOP
from gensor_gym.graph.coordinates import opened
from gensor_gym.graph.near_limits import DRAWS, near_limits
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.starts import starts
from gensor_gym.graph.tables.layout import (
    MAX_AXES,
    REDUCE_THREADS,
    SPATIAL_SLOTS,
    SPLIT_K,
    STAGES,
    TENSOR_CORE,
    TILE,
    VECTOR,
    WARP_TILE,
)
from gensor_gym.graph.tables.tables import HORIZON
from tests.support.graph_walks import OPERATORS, TENSOR
from tests.support.oracle import Oracle
from tests.support.thorough import thorough_but

SMALL = ("gemm(m=16, n=20, k=4)", "reduce_sum(m=8, k=24)", "max_pool2d(n=1, c=4, h=8, w=8, r=2, s=2, stride=2, padding=0)")
MANY = (*OPERATORS, *TENSOR)
WINDOWS = ("conv2d(n=1, c=16, h=28, w=28, k=32, r=3, s=3, padding=1)", "max_pool2d(n=2, c=8, h=32, w=32, r=3, s=3)")


def legal_by_definition(env: ConstructEnv | ConstructVectorEnv, graph: ConstructionGraph, row: np.ndarray) -> np.ndarray:
    """Legal actions bool [N] of a row [ROW]: every value of every column is made, and must differ and fit."""
    expected = np.zeros(env.tasks.num_actions, dtype=bool)
    expected[STOP] = True
    for column in graph.coordinates.movable():
        rows, first = column.every(row), int(env.tasks.places.starts[column.first])
        expected[first : first + len(rows)] = graph.fits(rows) & (rows != row).any(axis=1)
    return expected


def drawn_by_column(envs: ConstructVectorEnv, rng: np.random.Generator) -> np.ndarray:
    """A legal action of each, columns as likely as one another, so that knobs with few values are moved as often as axes."""
    widths = envs.tasks.places.widths
    column = np.repeat(np.arange(len(widths)), widths)
    found = []
    for mask in envs.action_masks():
        legal = np.flatnonzero(mask[1:])
        own = legal[column[legal] == rng.choice(np.unique(column[legal]))] if len(legal) else legal
        found.append(1 + int(rng.choice(own)) if len(own) else STOP)
    return np.array(found)


def places_to_begin(graph: ConstructionGraph) -> list[np.ndarray]:
    """Rows [ROW] of every kind of core, and ones with the last legal value of a knob that asks a lot of tiles.

    These are at the end of random walks, every other one with blocks that take as much of the reduction as is legal.
    """
    rng, found = np.random.default_rng(1), list(starts(graph.tables, graph.initial().row))
    columns = graph.coordinates.movable()
    reductions = [column for column in columns if TILE + SPATIAL_SLOTS <= column.first < TILE + MAX_AXES]
    for knob in (column for column in columns if column.first in (WARP_TILE, REDUCE_THREADS, SPLIT_K)):
        fitting = []
        for trial in range(60):
            row = opened(graph.random_schedule(rng).row, graph.tables.ints)
            for column in reductions if trial % 2 else ():
                rows = column.every(row)[np.argsort(column.values[:, 1] // column.values[:, 0], kind="stable")]
                row = rows[graph.fits(rows)][-1]
            every = knob.every(row)
            fitting.append(every[graph.fits(every)][-1])
        found.append(max(fitting, key=lambda row, at=knob.first: row[at]))  # type: ignore[misc]
    return found


@pytest.mark.parametrize("machine", ["h200", "cascade_lake", *thorough_but(("t4", "mi300x"))])
@pytest.mark.parametrize("operator", thorough_but(dict.fromkeys(MANY), MANY[0], MANY[5], TENSOR[4]))
def test_masks_are_what_is_legal_value_by_value(operator: str, machine: str) -> None:
    """On random ways from programs of every kind, knobs included: what differs and fits, and nothing else."""
    try:
        envs = ConstructVectorEnv(6, operator, machine, space="extended", moves="columns", threads=1)
    except ValueError as error:
        pytest.skip(str(error))
    graph, rng = envs.graphs[0], np.random.default_rng(0)
    for start in places_to_begin(graph):
        envs.reset(options={"schedule": Schedule(start)})
        for _ in range(min(14, int(envs.tasks.ints[0, HORIZON]) - 2)):  # with one step left `stop` alone is legal
            masks = envs.action_masks()
            for row, mask in zip(envs.rows, masks, strict=True):
                wrong = np.flatnonzero(mask != legal_by_definition(envs, graph, row))
                assert len(wrong) == 0, (Schedule(row), [envs.tasks.meaning(0, int(action)) for action in wrong[:3]])
            envs.step(drawn_by_column(envs, rng))


@pytest.mark.parametrize("machine", ["h200", "t4", "cascade_lake"])
@pytest.mark.parametrize("operator", WINDOWS)
def test_masks_are_exact_at_the_edges_of_limits(operator: str, machine: str) -> None:
    """Programs near the limits, with the widest loads and most buffers: where a smaller tile may take more than a larger one."""
    envs = ConstructVectorEnv(400, operator, machine, space="extended", moves="columns", threads=1)
    graph, rng = envs.graphs[0], np.random.default_rng(0)
    tables, first = graph.tables, graph.initial().row.copy()
    rows = near_limits(first, rng.random((4000, DRAWS)), tables.ints, tables.sizes)
    rows = opened(rows, tables.ints)
    for column in (column for column in graph.coordinates.movable() if column.first in (VECTOR, STAGES)):
        rows[:, column.first] = column.values[-1, 0]
    rows = rows[graph.fits(rows)][: envs.num_envs]
    assert len(rows) > 50
    envs.reset()
    envs.rows[: len(rows)] = rows
    envs._begin_part(np.arange(len(rows)))
    for row, mask in zip(rows, envs.action_masks(), strict=False):
        assert np.array_equal(mask, legal_by_definition(envs, graph, row)), Schedule(row)


def test_the_ways_of_the_test_meet_what_is_special() -> None:
    """Tensor cores of both kinds, patches of warps, reductions by several warps: without them the test above says little."""
    met = set()
    for operator in (MANY[3], MANY[0], MANY[6]):
        envs = ConstructVectorEnv(6, operator, "h200", space="extended", moves="columns", threads=1)
        graph, rng = envs.graphs[0], np.random.default_rng(0)
        for start in places_to_begin(graph):
            envs.reset(options={"schedule": Schedule(start)})
            for _ in range(14):
                for row in envs.rows:
                    shares = Schedule(row).knob("reduce_threads") > 32
                    met |= {("core", int(row[TENSOR_CORE])), ("warps", bool(row[WARP_TILE] > 0)), ("shares", shares)}
                envs.step(drawn_by_column(envs, rng))
    assert met >= {("core", 0), ("core", 1), ("core", 2), ("warps", True), ("shares", True)}


@pytest.mark.parametrize("machine", ["h200", "cascade_lake"])
@pytest.mark.parametrize("operator", SMALL)
def test_an_independent_oracle_agrees(operator: str, machine: str) -> None:
    """From programs of a small space, the mask has exactly those that differ in one column and that the oracle finds legal."""
    env = ConstructEnv(operator, machine, space="compact", moves="columns")
    graph = env.graph
    oracle = Oracle(operators.resolve_one(operator), hardware.get(machine), "compact")
    legal = {oracle.write(state).key for state in oracle.enumerate() if state.level == oracle.levels - 1}
    programs = [np.frombuffer(key, dtype=np.int32) for key in sorted(legal)]
    assert len(programs) > 10
    for row in programs[:: max(1, len(programs) // 12)]:
        env.reset(options={"schedule": Schedule(row)})
        mask = env.action_masks()
        led = set()
        for action in np.flatnonzero(mask)[1:]:
            env.reset(options={"schedule": Schedule(row)})
            env.step(int(action))
            led.add(env.schedule.key)
        beside = {
            one.tobytes()
            for column in graph.coordinates.movable()
            for one in column.every(row)
            if one.tobytes() in legal and (one != row).any()
        }
        assert led == beside and len(led) == mask[1:].sum()


def test_every_program_of_a_small_space_is_reached() -> None:
    """Following every legal action from the start."""
    env = ConstructEnv(SMALL[0], "h200", space="compact", moves="columns")
    legal = {row.tobytes() for rows in env.graph.enumerate() for row in rows}
    env.reset()
    found, ahead = {env.schedule.key}, [env.schedule]
    while ahead:
        schedule = ahead.pop()
        env.reset(options={"schedule": schedule})
        for action in np.flatnonzero(env.action_masks())[1:]:
            env.reset(options={"schedule": schedule})
            env.step(int(action))
            if env.schedule.key not in found:
                found.add(env.schedule.key)
                ahead.append(env.schedule)
    assert found == legal
