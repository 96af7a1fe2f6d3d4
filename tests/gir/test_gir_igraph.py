"""The instruction graph, interpreted by NumPy, computes what the dataflow graph does and moves what the profile counts."""

from __future__ import annotations

import inspect
import itertools

import numpy as np
import pytest

from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.suite import FACTORIES, make
from gensor_gym.dataflow.text import parse
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.lowering import Lowered, lower
from gensor_gym.gir.nest import RowNest, row_nest
from gensor_gym.gir.placement import Level, Placement, levels_of
from gensor_gym.gir.profile import KernelProfile, PassProfile, profile_of
from gensor_gym.gir.schedule import make_schedule
from gensor_gym.measure.answers.fused import FusedDraw, fused_draws
from tests.support.gir_cases import SUITE, machine
from tests.support.gir_interpreter import Moved, interpreted
from tests.support.row_dataflows import random_rows_dataflow
from tests.support.thorough import thorough_but


def of_suite(name: str) -> Dataflow:
    sizes = {"m": 4, "n": 7, "t": 2, "h": 3, "d": 6, "groups": 3, "c": 2, "w": 3, "a": 2, "b": 3}
    given = inspect.signature(FACTORIES[name]).parameters
    return make(name, **{one: sizes[one] for one in given if one in sizes})


def placements(nest: RowNest) -> list[Placement]:
    """All that no rule of single cells forbids."""
    return list(itertools.product(*(levels_of(nest, name) for name in nest.crossing)))


def check(lowered: Lowered, draw: FusedDraw) -> None:
    """Outputs are within their bounds, and as much was moved as the profile says."""
    outputs, moved = interpreted(lowered, draw.inputs)
    assert draw.fault(outputs[0] if len(outputs) == 1 else outputs) == "", f"{lowered.nest.graph} {lowered.placement}"
    profile = profile_of(lowered.nest, lowered.placement)
    assert profile.spilled == sum(buffer.elements for buffer in lowered.spilled)
    assert len(profile.kernels) == len(lowered.kernels)
    for number, kernel in enumerate(profile.kernels):
        check_kernel(lowered.nest, kernel, moved, number)


def check_kernel(nest: RowNest, kernel: KernelProfile, moved: Moved, number: int) -> None:
    """What a kernel moved in each pass, in rows of all columns."""
    own = {value.name for value in nest.graph.inputs} | set(nest.graph.returns)
    for place, one in enumerate(kernel.passes):
        here = {what: count for (k, p, what), count in moved.items() if (k, p) == (number, place)}
        found = dict.fromkeys(("read", "outputs", "spills", "scratch"), 0)
        for what, count in here.items():
            kind, _, tensor = what.partition(" ")
            kind = {"written": "outputs" if tensor in own else "spills", "registers": ""}.get(kind, kind)
            if kind:
                found[kind] += count
        assert found == {kind: round(count * nest.elements) for kind, count in counted(one).items()}


def counted(one: PassProfile) -> dict[str, int]:
    """What the profile says of a pass."""
    return {"read": one.inputs + one.again, "outputs": one.outputs, "spills": one.spills, "scratch": one.scratch}


@pytest.mark.parametrize("name", SUITE)
def test_all_placements_of_the_suite(name: str) -> None:
    graph = of_suite(name)
    nest, draws = row_nest(graph), fused_draws(graph, 0)
    sound = 0
    for place, placement in enumerate(placements(nest)):
        lowered = lower(nest, placement)
        if not lowered.fault:
            check(lowered, draws[place % 2])
            sound += 1
    assert sound >= 1 if nest.crossing else sound == 1


@pytest.mark.parametrize("seeds", thorough_but([range(20), range(20, 220)], range(20)), ids=str)
def test_placements_of_random_graphs(seeds: range) -> None:
    checked = 0
    for seed in seeds:
        graph = random_rows_dataflow(seed)
        try:
            nest = row_nest(graph)
        except ValueError as error:
            assert str(error).startswith(f"{graph.name}: ")
            continue
        rng, draws = np.random.default_rng(seed), fused_draws(graph, seed)
        for _ in range(3):
            levels = [levels_of(nest, name) for name in nest.crossing]
            lowered = lower(nest, tuple(Level(int(rng.choice(some))) for some in levels))
            if not lowered.fault and len(nest.crossing) <= 16:
                check(lowered, draws[0])
                checked += 1
    assert checked > len(seeds)


BESIDE = """def beside(x: float32[4, 7]):
    top = reduce_max(x, axes=[1])
    e = exp(x - top)
    total = reduce_sum(e, axes=[1])
    y = e / total + x
    return y
"""


def test_a_faulty_placement_reads_what_is_no_longer_there() -> None:
    """Those that the rules call faults are: the interpreter finds a row's buffer gone, of no other placement."""
    graph = parse(BESIDE)
    nest, draw, faulty = row_nest(graph), fused_draws(graph, 0)[0], 0
    for placement in placements(nest):
        lowered = lower(nest, placement)
        legal = GirGraph(graph, machine()).is_legal(make_schedule({"vector": 4}, placement))
        assert legal == (not lowered.fault)
        if not lowered.fault:
            check(lowered, draw)
            continue
        faulty += 1
        assert "when the kernel ends after pass" in lowered.fault
        with pytest.raises(KeyError, match="x"):
            interpreted(lowered, draw.inputs)
    assert faulty == 2  # x in a buffer or in registers while e goes through DRAM


@pytest.mark.parametrize("name", ["softmax", "layernorm", "add_layernorm", "rope"])
def test_moved_bytes_are_those_of_the_interpreter(name: str) -> None:
    graph = GirGraph(of_suite(name), machine())
    draw = fused_draws(graph.operator, 0)[0]
    for placement in placements(graph.nest):
        lowered = lower(graph.nest, placement)
        _, moved = interpreted(lowered, draw.inputs)
        expected = 4 * sum(count for (_, _, what), count in moved.items() if what != "registers")
        assert graph.moved_bytes(make_schedule({}, placement).row[None])[0] == expected


def test_evaluation_and_interpreter_have_no_code_in_common() -> None:
    """The interpreter knows no node of a dataflow graph: what it computes comes from the instructions alone."""
    graph = of_suite("softmax")
    (x,) = fused_draws(graph, 0)[0].inputs
    outputs, _ = interpreted(lower(row_nest(graph), (Level.DRAM, Level.DRAM)), (2 * x,))
    assert np.allclose(outputs[0], evaluate(graph, (2 * x,))[0].value, atol=1e-6)
