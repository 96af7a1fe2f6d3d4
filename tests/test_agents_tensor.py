"""The traverser on GPUs: it begins at every kind of program, and finds the published configurations or better ones."""

from __future__ import annotations

import numpy as np
import pytest

from agents.markov import MarkovExtended
from agents.starts import WGMMA_COLUMNS, starts
from experiments.tables.gpu_published import MMA, SIMT, WGMMA, Kernel
from gensor_gym import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from tests.graph_walks import TENSOR, climbed, graph_of, tensor_start


@pytest.mark.parametrize("operator", TENSOR)
def test_walks_begin_at_every_kind_of_program(operator: str) -> None:
    graph = graph_of(operator, "h200", "extended")
    found = [Schedule(row) for row in starts(graph)]
    assert found[0] == graph.initial() and all(graph.is_legal(schedule) for schedule in found)
    kinds = [(schedule.knob("tensor_core"), schedule.knob("convolution")) for schedule in found]
    wgmma = graph.operator.name in ("gemm", "batched_gemm") and graph.operator.dtype != "int8"
    wide = [(2, 0)] * sum(columns <= graph.operator.extents[-2] for columns in WGMMA_COLUMNS) or [(2, 0)]
    expected = [(0, 0), (1, 0)] + (wide if wgmma else [])
    assert kinds == ([(0, 0), (0, 3), (1, 0)] if graph.operator.name == "conv2d" else expected)
    assert found[kinds.index((1, 0))] == tensor_start(graph)


@pytest.mark.parametrize("operator", ["gemm(m=512, n=512, k=512, dtype=\"bfloat16\")", TENSOR[1]])
def test_the_first_wgmma_program_is_reached_by_legal_moves(operator: str) -> None:
    graph = graph_of(operator, "h200", "extended")
    goal = Schedule(starts(graph)[-1])
    assert goal.knob("tensor_core") == 2
    schedule = tensor_start(graph)
    for slot in (3, 5):
        schedule = climbed(graph, schedule, f"tile[{slot}]", lambda s, at=slot: s.tile[0][at] == goal.tile[0][at])
    schedule = climbed(graph, schedule, "raise[tensor_core]", lambda s: s.knob("tensor_core") == 2)
    assert climbed(graph, schedule, "tile[4]", lambda s: s.tile[0][4] == goal.tile[0][4]) == goal


def test_spaces_without_knobs_and_cpus_begin_at_the_unscheduled_program() -> None:
    for machine, space in (("h200", "gensor"), ("cascade_lake", "extended")):
        graph = graph_of(TENSOR[0], machine, space)
        assert [Schedule(row) for row in starts(graph)] == [graph.initial()]


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
