"""The traverser on GPUs: it begins at every kind of program, and finds the published configurations or better ones."""

from __future__ import annotations

import numpy as np
import pytest

from agents.gensor.markov import MarkovExtended
from experiments.tables.gpu_published import MMA, SIMT, WGMMA, Kernel
from gensor_gym import ConstructionGraph
from gensor_gym.graph import resources
from gensor_gym.graph.compiled import plain
from gensor_gym.graph.matrices.choices import column_step, tensor_core_choices
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.starts import WGMMA_COLUMNS, starts
from gensor_gym.graph.structure import matrix_axes
from gensor_gym.graph.tables.layout import slot_of
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
