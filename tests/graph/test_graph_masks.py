"""Masks and limits: each limit is exact, and a program is looked at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import FunctionType

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

from gensor_gym import ConstructionGraph, hardware
from gensor_gym.graph import limits, resources, rules
from gensor_gym.graph.actions import KNOB_UP, NUM_ACTIONS, STOP
from gensor_gym.graph.compiling.plain import over_lists
from gensor_gym.graph.matrices.choices import tensor_core_choices
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables import tables
from gensor_gym.hardware.types import Hardware
from tests.support.graph_walks import OPERATORS, SPACES, TENSOR, graph_of, grown, tensor_start
from tests.support.oracle import Oracle, State
from tests.support.thorough import thorough_but

WIDE_WINDOWS = (
    "conv2d(n=1, c=4, h=16, w=16, k=8, r=3, s=3, padding=1)",
    "avg_pool2d(n=1, c=2, h=16, w=16, r=2, s=3, stride=1, padding=1)",
    "conv2d(n=1, c=4, h=16, w=16, k=8, r=5, s=5, padding=0, stride=2)",
)
"""Rows of their windows are copied in loads of four, which the tiles decide: a smaller tile may take more shared memory."""
WALKERS = 48
STEPS = 60


def tight(machine: str, rng: np.random.Generator) -> Hardware:
    """The machine with some limits so small, at random, that these operators meet them, and no others."""
    hw = hardware.get(machine)
    size = lambda low, high: int(2.0 ** rng.uniform(low, high)) if rng.random() < 0.6 else 1 << 32  # noqa: E731
    if hw.kind == "cpu":
        capacity = {"l2": size(9, 17), "l3": size(9, 19) * hw.units}
        memory = tuple(replace(m, capacity=capacity.get(m.name, m.capacity)) for m in hw.memory)
        return replace(hw, name="tight", memory=memory, vector_registers=size(3, 5))
    return replace(
        hw,
        name="tight",
        threads_per_block=size(5, 10),
        registers_per_thread=size(5.5, 8),
        registers_per_unit=size(12, 16),
        shared_per_block=size(9, 16),
    )


def refused(graph: ConstructionGraph, rng: np.random.Generator, start: Schedule | None = None) -> int:
    """Compare along random walks, each with a taste of its own in actions; the number of moves that limits forbade."""
    tastes = rng.gumbel(size=(WALKERS, NUM_ACTIONS)) * rng.uniform(0.5, 3.0, size=(WALKERS, 1))
    tastes[:, KNOB_UP:] -= 1.0
    rows = graph.stack([start or graph.initial()] * WALKERS)
    every = np.tile(np.arange(NUM_ACTIONS), WALKERS)
    forbidden = 0
    for _ in range(STEPS):
        _, legal = graph.transitions(np.repeat(rows, NUM_ACTIONS, axis=0), every)
        legal = legal.reshape(WALKERS, NUM_ACTIONS)
        masks = graph.action_masks(rows)
        differ = np.argwhere(masks != legal)
        assert len(differ) == 0, [(graph.actions[a], rows[w].tolist()) for w, a in differ[:3]]
        chances = np.where(legal, tastes + rng.gumbel(size=legal.shape), -np.inf)
        chances[:, STOP] = -1e9
        rows, _ = graph.transitions(rows, chances.argmax(axis=1))
        forbidden += int(np.count_nonzero(~legal))
    return forbidden


@pytest.mark.parametrize("operator", thorough_but(OPERATORS, *OPERATORS[::4]))
@pytest.mark.parametrize("machine", ["h200", "cascade_lake"])
def test_masks_are_the_definition(operator: str, machine: str) -> None:
    rng = np.random.default_rng(21)
    for space in SPACES:
        assert refused(graph_of(operator, machine, space), rng) > 0


@pytest.mark.parametrize("operator", thorough_but(OPERATORS, *OPERATORS[::4]))
@pytest.mark.parametrize("machine", ["t4", "cascade_lake"])
def test_masks_are_the_definition_where_every_limit_binds(operator: str, machine: str) -> None:
    rng = np.random.default_rng(22)
    graphs = [ConstructionGraph(operator, tight(machine, rng), space="extended") for _ in range(8)]
    assert all(refused(graph, rng) > 0 for graph in graphs if graph.is_legal(graph.initial()))
    assert any(graph.is_legal(graph.initial()) for graph in graphs)


@pytest.mark.parametrize("operator", TENSOR)
@pytest.mark.parametrize("machine", ["h200", "a100", "t4"])
def test_masks_are_the_definition_on_tensor_cores(operator: str, machine: str) -> None:
    rng = np.random.default_rng(24)
    graph = graph_of(operator, machine, "extended")
    if graph.operator.dtype in ("bfloat16", "tf32") and machine == "t4":
        assert tensor_core_choices(graph.operator, graph.hardware) == (0,)  # Turing has neither
        return
    assert refused(graph, rng, tensor_start(graph)) > 0


def exactly_met(row: np.ndarray, ints: np.ndarray) -> np.ndarray:
    """Tables of a machine that has not a byte, thread or register more than the program takes."""
    ints = ints.copy()
    if ints[tables.IS_CPU]:
        ints[tables.VECTOR_REGS] = resources.accumulators_of(row, ints) + resources.vectors_along(row, ints) + 1
        ints[tables.L2_BYTES] = resources.tile_bytes(row, 1, ints)
        ints[tables.L3_BYTES] = resources.tile_bytes(row, 2, ints) * ints[tables.UNITS]
    else:
        ints[tables.THREADS_BLOCK] = resources.threads_of(row, ints)
        ints[tables.REGS_THREAD] = resources.registers_of(row, ints)
        ints[tables.SHARED_BLOCK] = resources.shared_bytes_of(row, ints)
    return ints


@pytest.mark.parametrize("operator", thorough_but([*OPERATORS, *WIDE_WINDOWS], OPERATORS[0], WIDE_WINDOWS[0]))
@pytest.mark.parametrize("machine", ["t4", "h200", "cascade_lake"])
def test_masks_are_the_definition_where_a_program_takes_all_there_is(operator: str, machine: str) -> None:
    """Whatever a move takes more is refused here: so a limit that a move may break, and the mask does not look at, shows."""
    rng = np.random.default_rng(25)
    graph = graph_of(operator, machine, "extended")
    every, legal = np.arange(NUM_ACTIONS), np.empty(NUM_ACTIONS, dtype=bool)
    for _ in range(30):
        rows = graph.stack([graph.initial()])
        taste = 2.0 * rng.gumbel(size=NUM_ACTIONS) - (every >= KNOB_UP)
        for _ in range(80):
            ints = exactly_met(rows[0], graph.tables.ints)
            successors = np.empty((NUM_ACTIONS, rows.shape[1]), dtype=np.int32)
            mask = np.zeros((1, NUM_ACTIONS), dtype=np.int8)
            rules.transitions(np.repeat(rows, NUM_ACTIONS, axis=0), every, ints, graph.tables.sizes, successors, legal)
            rules.fill_masks(rows, ints, graph.tables.sizes, mask)
            assert (mask[0] == legal).all(), [(graph.actions[a], rows[0].tolist()) for a in every[mask[0] != legal]]
            chances = np.where(graph.action_masks(rows)[0], taste + rng.gumbel(size=NUM_ACTIONS), -np.inf)
            chances[STOP] = -1e9
            rows, _ = graph.transitions(rows, chances.argmax(keepdims=True))


@pytest.mark.thorough
def test_all_limits_together_are_each_of_them() -> None:
    """A row fits exactly when it keeps every single limit, so that looking at a set of them is enough."""
    rng = np.random.default_rng(23)
    names = ("REGISTERS", "CODE", "SHARED", "REDUCE_SHARES", "L1_TILE", "TASK_TILE", "PACKING", "SPLIT")
    names += ("MATRIX", "WARPS")
    kept = [getattr(limits, name) for name in names]
    assert sum(kept) == limits.EVERY and len(set(kept)) == len(kept)
    broken = np.zeros(len(kept), dtype=int)
    for operator in OPERATORS:
        for machine, fits in (("t4", limits.fits_gpu), ("cascade_lake", limits.fits_cpu)):
            graph = ConstructionGraph(operator, tight(machine, rng), space="extended")
            for _ in range(80):
                row = rough_row(graph, rng)
                verdicts = [bool(fits(row, graph.tables.ints, limit)) for limit in kept]
                assert bool(fits(row, graph.tables.ints)) == all(verdicts)
                broken += ~np.array(verdicts)
    assert (broken > 0).all(), dict(zip(names, broken, strict=True))


def rough_row(graph: ConstructionGraph, rng: np.random.Generator) -> np.ndarray:
    """A row of primitives applied blindly, growing ones more often: well formed, but it may take more than there is."""
    row = graph.initial().row.copy()
    chances = np.array([4.0 if a.primitive in ("tile", "raise") else 1.0 for a in graph.actions])
    for action in rng.choice(NUM_ACTIONS, rng.integers(20, 400), p=chances / chances.sum()):
        rules.apply(row, action, graph.tables.ints, graph.tables.sizes)
    return row


@pytest.mark.parametrize(("limit", "legal"), [(512, True), (511, False)])
def test_the_exchange_of_reduction_threads_can_be_what_does_not_fit(limit: int, legal: bool) -> None:
    """Only with room in all other limits, so random walks do not come here: 64 x 64 threads exchange 512 bytes."""
    room = {"threads_per_block": 1 << 32, "registers_per_thread": 1 << 32, "registers_per_unit": 1 << 32}
    machine = replace(hardware.get("t4"), name="tight", shared_per_block=limit, **room)
    graph = ConstructionGraph("reduce_sum(m=64, k=4000)", machine, space="extended")
    place = {str(action): i for i, action in enumerate(graph.actions)}
    schedule = graph.transition(graph.initial(), place["cache"])
    for action, times in (("tile[4]", 64), ("tile[5]", 64), ("raise[reduce_threads]", 5)):
        for _ in range(times):
            schedule = graph.transition(schedule, place[action])
    assert schedule.tile[1][4] == 64 and schedule.knob("reduce_threads") == 32
    raised = place["raise[reduce_threads]"]
    assert graph.action_mask(schedule)[raised] == legal
    assert (graph.transition(schedule, raised) != schedule) == legal


HUGE = 1 << 40


def roomy(machine: str) -> Hardware:
    """The machine with no limit but the code size."""
    hw = hardware.get(machine)
    return replace(
        with_capacity(hw, "l2", HUGE),
        name="roomy",
        threads_per_block=HUGE,
        registers_per_thread=HUGE,
        registers_per_unit=HUGE,
        shared_per_block=HUGE,
        vector_registers=HUGE if hw.kind == "cpu" else 0,
    )


def with_capacity(hw: Hardware, name: str, capacity: int) -> Hardware:
    levels = tuple(replace(level, capacity=capacity) if level.name == name else level for level in hw.memory)
    return replace(hw, memory=levels)


def granted(oracle: Oracle, state: State) -> int:
    """Registers of a block: in units of 256 for a warp, warps in fours."""
    warps = math.ceil(oracle.threads(state) / 32)
    return math.ceil(oracle.registers(state) * 32 / 256) * 256 * math.ceil(warps / 4) * 4


Case = tuple[str, Callable[[Oracle, State], int], Callable[[Hardware, int], Hardware]]
CASES: list[Case] = [
    ("h200", Oracle.threads, lambda hw, n: replace(hw, threads_per_block=n)),
    ("h200", Oracle.registers, lambda hw, n: replace(hw, registers_per_thread=n)),
    ("h200", granted, lambda hw, n: replace(hw, registers_per_unit=n)),
    ("h200", Oracle.shared_bytes, lambda hw, n: replace(hw, shared_per_block=n)),
    ("cascade_lake", lambda o, s: sum(o.vectors(s)) + 1, lambda hw, n: replace(hw, vector_registers=n)),
    (
        "cascade_lake",
        lambda o, s: o.tile_bytes(s, 1),
        lambda hw, n: with_capacity(with_capacity(hw, "l2", n), "l3", HUGE),
    ),
    # the share of L3 is at least four times L2, so L2 is made a quarter of the task tile
    (
        "cascade_lake",
        lambda o, s: o.tile_bytes(s, 2),
        lambda hw, n: with_capacity(with_capacity(hw, "l2", n // 4), "l3", 0),
    ),
    (
        "cascade_lake",
        lambda o, s: 2 * o.tile_bytes(s, 2),
        lambda hw, n: with_capacity(with_capacity(hw, "l2", n // 16), "l3", n),
    ),
]
NAMES = ["threads", "registers", "registers of a block", "shared", "vector registers", "L1 tile", "task tile", "share of L3"]


def programs(machine: str) -> list[tuple[str, Schedule]]:
    """Legal programs of every operator: grown to the limits, and half way."""
    rng = np.random.default_rng(0)
    paths = [(op, grown(graph_of(op, machine, "extended"), rng, 0.2)) for op in OPERATORS]
    return [(op, path[at]) for op, path in paths for at in (-1, len(path) // 2)]


@pytest.mark.parametrize(("machine", "takes", "limited"), CASES, ids=NAMES)
def test_a_limit_is_met_exactly(machine: str, takes: Callable, limited: Callable) -> None:
    refused = 0
    for operator, schedule in programs(machine):
        op = graph_of(operator, machine, "extended").operator
        free = Oracle(op, roomy(machine), "extended")
        count = takes(free, free.read(schedule))
        enough = ConstructionGraph(op, limited(roomy(machine), count), space="extended")
        short = ConstructionGraph(op, limited(roomy(machine), count - 1), space="extended")
        assert enough.is_legal(schedule) == Oracle(op, enough.hardware, "extended").is_legal(schedule)
        assert not short.is_legal(schedule)
        refused += enough.is_legal(schedule)
    assert refused > 10


TASKS = (("gemm(m=96, n=64, k=80)", "host"), ("conv2d(n=1, c=8, h=9, w=9, k=16, r=3, s=3)", "h200"))


def rows(graph: ConstructionGraph) -> list[np.ndarray]:
    """Legal rows, and the same with one number put out of place."""
    rng = np.random.default_rng(0)
    legal = [graph.random_schedule(rng).row for _ in range(12)]
    changed = [row.copy() for row in legal for _ in range(4)]
    for row in changed:
        row[rng.integers(len(row))] = rng.choice([0, -1, 2, 7, 64, 1 << 20, np.iinfo(np.int32).max])
    return legal + changed


@pytest.mark.parametrize(("operator", "machine"), TASKS)
def test_the_verdicts_are_the_same(operator: str, machine: str) -> None:
    graph = ConstructionGraph(operator, machine, "extended")
    schedules = [Schedule(row) for row in rows(graph)]
    verdicts = [graph.is_legal(schedule) for schedule in schedules]
    assert [graph.is_legal_once(schedule) for schedule in schedules] == verdicts
    assert verdicts.count(True) >= 12 and verdicts.count(False) >= 12


def test_no_compiled_rule_is_left_in_the_plain_ones() -> None:
    for rule in (rules.fits, rules.is_well_formed):
        waiting, seen = [over_lists(rule)], set()
        while waiting:
            plain = waiting.pop()
            assert not isinstance(plain, Dispatcher)
            used = [plain.__globals__.get(name) for name in plain.__code__.co_names]
            waiting += [value for value in used if isinstance(value, (Dispatcher, FunctionType)) and id(value) not in seen]
            seen.update(map(id, used))
        assert len(seen) > 3
