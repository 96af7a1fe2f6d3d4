"""Where walks begin: programs of every kind, chains and descents from the best register tiles."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from agents import get_strategy
from agents.autotvm.template import Template
from agents.core.programs import Programs
from agents.core.ranking import REGISTER_TILE, Construction, best_of_each
from agents.gensor.markov import MarkovExtended
from agents.hybrids.annealed import annealed, template_of
from agents.hybrids.model_descent import ModelDescentExtended
from experiments.tables.gpu_published import MMA, SIMT, WGMMA, Kernel
from gensor_gym import ConstructionGraph, hardware
from gensor_gym.graph import resources
from gensor_gym.graph.compiled import plain
from gensor_gym.graph.matrices.choices import column_step, tensor_core_choices
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.starts import WGMMA_COLUMNS, starts
from gensor_gym.graph.structure import matrix_axes
from gensor_gym.graph.tables.layout import MAX_AXES, TENSOR_CORE, TILE, slot_of
from tests.support.graph_walks import TENSOR, climbed, graph_of, tensor_start, walk
from tests.support.oracle import Oracle
from tests.support.thorough import thorough_but


@pytest.mark.parametrize("operator", TENSOR)
def test_walks_begin_at_every_kind_of_program(operator: str) -> None:
    graph = graph_of(operator, "h200", "extended")
    found = [Schedule(row) for row in starts(graph.tables, graph.initial().row)]
    assert found[0] == graph.initial() and all(graph.is_legal(schedule) for schedule in found)
    kinds = [(schedule.knob("tensor_core"), schedule.knob("convolution")) for schedule in found]
    wgmma = 2 in tensor_core_choices(graph.operator, graph.hardware)
    convolution = graph.operator.name == "conv2d"
    wide = 3 if convolution else sum(n <= graph.operator.extents[-2] for n in WGMMA_COLUMNS) or 1
    first = [(0, 0), (0, 3), (1, 0)] if convolution else [(0, 0), (1, 0)]
    assert kinds == first + [(2, 0)] * (wide if wgmma else 0)
    assert found[kinds.index((1, 0))] == tensor_start(graph)


@pytest.mark.parametrize("operator", ['gemm(m=512, n=512, k=512, dtype="bfloat16")', TENSOR[1], *TENSOR[4:]])
def test_the_first_wgmma_program_is_reached_by_legal_moves(operator: str) -> None:
    graph = graph_of(operator, "h200", "extended")
    goal = Schedule(starts(graph.tables, graph.initial().row)[-1])
    assert goal.knob("tensor_core") == 2
    schedule = tensor_start(graph)
    roles = matrix_axes(graph.operator)
    m, k = (slot_of(axis, len(graph.operator.spatial)) for axis in (roles.m, roles.k))
    columns = [slot for slot in (4, 3, 2, 1) if goal.tile[0][slot] > 1 and slot != m]
    for slot in (m, k):
        schedule = climbed(graph, schedule, f"tile[{slot}]", lambda s, at=slot: s.tile[0][at] == goal.tile[0][at])
    n, step = slot_of(roles.n, len(graph.operator.spatial)), column_step(graph.operator)
    if graph.operator.name == "conv2d" and goal.tile[0][n] % step:  # sixteens of several rows
        schedule = climbed(graph, schedule, f"tile[{n - 1}]", lambda s: s.tile[0][n - 1] % 2 == 0)
    else:
        schedule = climbed(graph, schedule, f"tile[{n}]", lambda s: s.tile[0][n] % step == 0)
    schedule = climbed(graph, schedule, "raise[tensor_core]", lambda s: s.knob("tensor_core") == 2)
    for slot in columns:
        schedule = climbed(graph, schedule, f"tile[{slot}]", lambda s, at=slot: s.tile[0][at] == goal.tile[0][at])
    assert schedule == goal


@pytest.mark.parametrize("operator", thorough_but(TENSOR[4:], *TENSOR[4::3]))
def test_masks_among_wgmma_programs_are_the_oracles(operator: str) -> None:
    """Pixels of several rows and images in a tile, columns of a transposed B, several consumers, clusters."""
    graph = graph_of(operator, "h200", "extended")
    rng, oracle, ints, cores = np.random.default_rng(6), Oracle(graph.operator, graph.hardware, "extended"), graph.tables.ints, []
    begins = [row for row in starts(graph.tables, graph.initial().row) if Schedule(row).knob("tensor_core") == 2]
    for row in begins * (3 // len(begins)):
        for schedule in list(walk(graph, rng, 30, Schedule(row)))[::2]:
            state = oracle.read(schedule)
            cores.append(state.knob("tensor_core"))
            assert graph.action_mask(schedule).tolist() == oracle.mask(state), str(schedule)
            assert resources.threads_of(plain(schedule.row), ints) == oracle.threads(state)
            assert resources.registers_of(plain(schedule.row), ints) == oracle.registers(state)
            assert resources.shared_bytes_of(plain(schedule.row), ints) == oracle.shared_bytes(state)
    assert cores.count(2) >= 20  # walks may leave wgmma


def test_first_wgmma_programs_of_a_convolution_take_whole_rows() -> None:
    graph = graph_of('conv2d(n=16, c=64, h=56, w=56, k=64, r=3, s=3, padding=1, dtype="float16")', "h200", "extended")
    found = [Schedule(row).tile[0] for row in starts(graph.tables, graph.initial().row) if Schedule(row).knob("tensor_core") == 2]
    assert [(tile[1], tile[2], tile[3], tile[4]) for tile in found] == [(1, 64, 1, 56), (1, 64, 2, 56), (1, 64, 4, 56)]


def test_the_best_program_of_a_convolution_is_wgmma_where_it_pays() -> None:
    """Many channels; with few the layout costs more than it saves."""
    graph = ConstructionGraph('conv2d(n=16, c=512, h=28, w=28, k=512, r=3, s=3, padding=1, dtype="float16")', "h200", "extended")
    found = MarkovExtended().construct(graph, np.random.default_rng(5))
    assert found.schedules[0].knob("tensor_core") == 2


def test_spaces_without_knobs_and_cpus_begin_at_the_unscheduled_program() -> None:
    for machine, space in (("h200", "gensor"), ("cascade_lake", "extended")):
        graph = graph_of(TENSOR[0], machine, space)
        assert [Schedule(row) for row in starts(graph.tables, graph.initial().row)] == [graph.initial()]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("dtype", "machine", "kernel", "core"),
    [("float32", "h200", SIMT, 0), ("bfloat16", "h200", WGMMA, 2), ("float16", "a100", MMA, 1)],
)
def test_the_best_is_at_least_the_published_configuration(dtype: str, machine: str, kernel: Kernel, core: int) -> None:
    graph = ConstructionGraph(f'gemm(m=4096, n=4096, k=4096, dtype="{dtype}")', machine, space="extended")
    published = float(graph.latencies(kernel.row()[None])[0])
    assert graph.is_legal(Schedule(kernel.row()))
    found = MarkovExtended().construct(graph, np.random.default_rng(5))
    assert found.latencies[0] <= published * (1 + 1e-9)
    assert found.schedules[0].knob("tensor_core") == core and found.schedules[0].knob("stages") > 1


GRAPH = ConstructionGraph("batched_gemm(b=12, m=128, n=128, k=64)", hardware.get("cascade_lake"), "extended")


def test_two_innermost_tiles_differ_and_little_else() -> None:
    programs = Programs(GRAPH)
    row, _ = programs.descend(GRAPH.random_schedule(np.random.default_rng(0)).row)
    rows = programs.other_register_tiles(row)
    innermost = slice(TILE, TILE + MAX_AXES)
    assert len(rows) > 50 and ((rows[:, innermost] != row[innermost]).sum(axis=1) == 2).all()
    assert len(np.unique(rows[:, innermost], axis=0)) == len(rows)
    spatial = {column.first: column for column in programs.columns if not column.is_knob}
    for made in rows[:: len(rows) // 20]:
        for first in np.flatnonzero(made[innermost] != row[innermost]):
            column = spatial[TILE + first]
            there, here = made[column.places], row[column.places]
            same = column.values[column.values[:, 0] == there[0]]
            assert np.abs(np.log2(there / here))[1:].sum() <= np.abs(np.log2(same / here))[:, 1:].sum(axis=1).min() + 1e-12


def test_descents_from_them_find_faster_programs() -> None:
    def found(register_tiles: int) -> float:
        strategy = dataclasses.replace(ModelDescentExtended(restarts=4, structures=2), register_tiles=register_tiles)
        return sum(strategy.construct(GRAPH, np.random.default_rng(seed)).latencies[0] for seed in range(3))

    assert found(8) < found(0)


OPERATOR = "conv2d(n=4, c=32, h=14, w=14, k=64, r=3, s=3, padding=1)"
WALK = {"walkers": 2, "steps": 24, "refiners": 0, "descents": 1}


def _found(seed: int = 0) -> tuple[ConstructionGraph, Construction]:
    """A short walk's construction."""
    graph = ConstructionGraph(OPERATOR, "h200")
    found: Construction = get_strategy("markov", space="gensor", **WALK).construct(graph, np.random.default_rng(seed))  # type: ignore[attr-defined]
    return graph, found


@pytest.mark.parametrize("chains", [1, 3, 200])
def test_chains_begin_at_the_best_of_each_register_tile(chains: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked first are these programs; with more chains than tiles several begin at one."""
    graph, found = _found()
    asked: list[np.ndarray] = []
    original = ConstructionGraph.latencies

    def watched(self: ConstructionGraph, rows: np.ndarray) -> np.ndarray:
        asked.append(rows)
        return original(self, rows)

    monkeypatch.setattr(ConstructionGraph, "latencies", watched)
    annealed(graph, found, chains, 2, 0.1, np.random.default_rng(1))
    rows = np.array([schedule.row for schedule in found.schedules])
    wanted = best_of_each(REGISTER_TILE, rows, np.array(found.latencies))[:chains]
    assert [len(rows) for rows in asked] == [chains] * 3
    np.testing.assert_array_equal(asked[0], np.resize(wanted, asked[0].shape))
    changed = (asked[1] != asked[0]).any(axis=1)
    assert changed.any(), "chains move"


def test_what_is_found_is_added_and_counted() -> None:
    graph, found = _found()
    before = graph.evaluations
    more = annealed(graph, found, 4, 32, 0.1, np.random.default_rng(1))
    assert graph.evaluations - before == 4 * 33 == more.evaluations - found.evaluations
    assert set(found.schedules) < set(more.schedules)
    assert more.visited - found.visited == 4 * 33 and more.seconds > found.seconds
    assert list(more.latencies) == sorted(more.latencies) and more.latencies[0] < found.latencies[0]
    again = ConstructionGraph(OPERATOR, "h200")
    assert list(more.latencies) == [again.latency(schedule) for schedule in more.schedules], "all are legal programs"


def _steps(found: Construction, temperature: float, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """By how much the logarithm of the latency rose in every step that a chain of 200 took."""
    graph = ConstructionGraph(OPERATOR, "h200")
    points: list[np.ndarray] = []
    original = Template.mutated

    def watched(self: Template, configurations: np.ndarray, rng: np.random.Generator, tries: int = 8) -> np.ndarray:
        points.append(configurations)
        return original(self, configurations, rng, tries)

    with monkeypatch.context() as patched:
        patched.setattr(Template, "mutated", watched)
        annealed(graph, found, 1, 200, temperature, np.random.default_rng(2))
    return np.diff(np.log(graph.latencies(template_of(graph).rows(np.concatenate(points)))))


def test_cold_chains_only_go_down_and_hot_ones_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = _found()
    cold, hot = (_steps(found, temperature, monkeypatch) for temperature in (0.0, 5.0))
    assert len(cold) == len(hot) == 199, "no chain ends before its steps"
    assert (cold <= 0).all() and (cold < 0).any()
    assert (hot > 0.1).sum() > 20


@pytest.mark.parametrize("there", [0, 1])
def test_programs_that_the_template_does_not_have_begin_no_chain(there: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains begin at those it has; at random programs where it has none."""
    graph, found = _found()
    few = dataclasses.replace(found, schedules=found.schedules[-3:], latencies=found.latencies[-3:])
    had = set(few.schedules[:there])
    original, begun = Template.vector_of, []
    monkeypatch.setattr(Template, "vector_of", lambda self, row: original(self, row) if Schedule(row) in had else None)
    moved = Template.mutated
    monkeypatch.setattr(Template, "mutated", lambda self, points, rng: begun.append(points) or moved(self, points, rng))
    more = annealed(graph, few, 4, 3, 0.1, np.random.default_rng(0))
    assert len(begun[0]) == 4 and len(np.unique(begun[0], axis=0)) == (1 if there else 4)
    assert set(few.schedules) < set(more.schedules)
    nothing = dataclasses.replace(found, schedules=(), latencies=())
    assert annealed(graph, nothing, 2, 3, 0.1, np.random.default_rng(0)).latencies


@pytest.mark.parametrize("field", ["chains", "chain_steps"])
def test_settings_out_of_range_are_named(field: str) -> None:
    for name in ("markov_annealing", "policy_annealing"):
        with pytest.raises(ValueError, match=f"{field}=0"):
            get_strategy(name, **{field: 0})
    with pytest.raises(ValueError, match="chain_temperature=-1"):
        get_strategy("markov_annealing", chain_temperature=-1.0)
    with pytest.raises(ValueError, match="form"):
        get_strategy("markov_annealing", form="sum")


def test_few_chains_begin_at_every_stratum_by_turns() -> None:
    """Two chains on CUDA cores, mma.sync and wgmma: after some rounds each stratum has been begun at."""
    graph = ConstructionGraph("gemm(m=1024, n=1024, k=1024, dtype=\"float16\")", "h200", "extended")
    search, begun = get_strategy("model_annealing", chains=2, steps=1), set()
    rounds = search.rounds(graph, np.random.default_rng(0))  # type: ignore[attr-defined]
    for _ in range(12):
        begun |= {int(schedule.row[TENSOR_CORE]) for schedule in next(rounds).schedules}
    assert begun == {0, 1, 2}


def test_the_strategy_is_the_walk_and_then_the_chains() -> None:
    graph = ConstructionGraph(OPERATOR, "h200")
    behind = get_strategy("markov_annealing", space="gensor", chains=4, chain_steps=16, chain_temperature=0.2, **WALK)
    made = behind.construct(graph, np.random.default_rng(5))  # type: ignore[attr-defined]
    rng = np.random.default_rng(5)
    walk = get_strategy("markov", space="gensor", **WALK).construct(graph, rng)  # type: ignore[attr-defined]
    assert made.schedules == annealed(graph, walk, 4, 16, 0.2, rng).schedules


def test_a_configuration_gives_its_schedule_back() -> None:
    graph, found = _found()
    template = template_of(graph)
    assert template_of(graph) is template
    point = template.vector(found.schedules[0])
    assert point is not None and Schedule(template.rows(point[None])[0]) == found.schedules[0]
    row = found.schedules[0].row.copy()
    row[REGISTER_TILE[0]] = 3
    assert template.vector_of(row) is None
