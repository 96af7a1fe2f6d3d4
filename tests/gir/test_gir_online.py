"""Sums of exponentials less a running maximum: where there are such, what they do, and that faults in them are seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gensor_gym.codegen.gir.generate import GirProgram, generate_gir
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.suite import make
from gensor_gym.dataflow.text import parse
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.lowering import lower
from gensor_gym.gir.nest import row_nest
from gensor_gym.gir.online import LEAST_COLUMNS, online_sums
from gensor_gym.gir.placement import Level, levels_of, passes_of
from gensor_gym.gir.schedule import HEADER, GirSchedule
from gensor_gym.measure.answers.fused import FusedDraw, fused_draws
from tests.support import gir_cases
from tests.support.gir_cases import kernel_at, machine
from tests.support.gir_interpreter import interpreted
from tests.support.thorough import thorough_but

TWO_SUMS = """def two(x: float32[3, {n}], w: float32[3, {n}]):
    s = x * 0.5 + w
    top = reduce_max(s, axes=[1])
    e = exp(s - top)
    total = reduce_sum(e, axes=[1])
    weighted = e * w
    moment = reduce_sum(weighted, axes=[1])
    y = e / total + w
    return y, moment, total, top
"""
"""A sum that may be online beside one that may not, with all numbers of the row as outputs."""
OTHERS = ("exp(x - 2.0 * top)", "exp(top - x)", "exp(x - other)", "exp(z - top)", "tanh(x - top)")


def online_kernels(graph: Dataflow, count: int, seed: int = 0) -> list[Kernel]:
    """Random legal programs with an online sum, for three widths of vectors."""
    found, rng = [], np.random.default_rng(seed)
    for lanes in (16, 8, 4):
        space = GirGraph(graph, machine(lanes))
        rows = np.concatenate(list(space.enumerate()))
        rows = rows[(rows[:, HEADER:] == Level.ONLINE).any(axis=1)]
        chosen = rng.choice(rows, min(count, len(rows)), replace=False)
        found += [generate_gir(GirProgram(space.nest, GirSchedule(row), space.hardware)) for row in chosen]
    return found


GRAPHS = [make("softmax", 7, 197), make("masked_softmax", 3, 130), make("softmax", 2, 1000), parse(TWO_SUMS.format(n=165))]


def test_a_pass_less() -> None:
    nest = row_nest(GRAPHS[0])
    assert nest.crossing == ("x", "e") and online_sums(nest, "e") == ("total",)
    three, two = (passes_of(nest, (Level.DRAM, level)) for level in (Level.RECOMPUTE, Level.ONLINE))
    assert three.makes == (("x",), ("x", "e"), ("x", "e", "y")) and two.makes == (("x",), ("x", "e", "y"))
    assert two.nest.cell["total"].sources == ("x",) and nest.cell["total"].sources == ("e",)


@pytest.mark.parametrize("body", OTHERS)
def test_only_what_is_scaled_with_its_own_maximum(body: str) -> None:
    text = f"""def other(x: float32[3, 200], z: float32[3, 200]):
    top = reduce_max(x, axes=[1])
    other = reduce_max(z, axes=[1])
    e = {body}
    total = reduce_sum(e, axes=[1])
    y = e / total + z + x + top + other
    return y
"""
    nest = row_nest(parse(text))
    assert "e" in nest.crossing and Level.ONLINE not in levels_of(nest, "e")


def test_rows_are_long_enough_for_the_bound() -> None:
    short, long = (row_nest(make("softmax", 2, n)) for n in (LEAST_COLUMNS - 1, LEAST_COLUMNS))
    assert Level.ONLINE in levels_of(long, "e") and Level.ONLINE not in levels_of(short, "e")
    graph = GirGraph(make("softmax", 2, 200), machine())
    narrow = "vector=4 tile=1 rows=1 loop=1 streaming=0 place=dram,online"
    assert graph.is_legal(graph.parse(narrow.replace("tile=1", "tile=2"))) and not graph.is_legal(graph.parse(narrow))


@pytest.mark.parametrize("graph", thorough_but(GRAPHS, GRAPHS[1], GRAPHS[3]), ids=str)
def test_programs_are_right_between_guard_pages(graph: Dataflow) -> None:
    assert gir_cases.faults_of(online_kernels(graph, 5)) == []


@pytest.mark.parametrize("graph", GRAPHS, ids=str)
def test_the_instruction_graph_says_the_same(graph: Dataflow) -> None:
    nest, draw, checked = row_nest(graph), fused_draws(graph, 0)[0], 0
    for level in (Level.DRAM, Level.SRAM, Level.REG):
        placement = tuple(Level.ONLINE if online_sums(nest, name) else level for name in nest.crossing)
        lowered = lower(nest, placement)
        if not lowered.fault:
            outputs, _ = interpreted(lowered, draw.inputs)
            assert not draw.fault(outputs[0] if len(outputs) == 1 else outputs)
            checked += 1
    assert checked >= 2


def hard_rows(n: int) -> np.ndarray:
    """Rows of which the maximum grows at every step, comes first, is far off, or is preceded by much that is not seen."""
    rng, rise = np.random.default_rng(1), np.linspace(-80.0, 80.0, n)
    drawn = rng.standard_normal(n)
    unseen, all_unseen = drawn.copy(), np.full(n, -np.inf)
    unseen[: n - 3] = -np.inf
    strange = [drawn.copy() for _ in range(3)]
    strange[0][n // 2], strange[1][n - 1], strange[2][0] = np.nan, np.inf, 3e38
    return np.array([rise, rise[::-1], 1e4 * drawn, unseen, all_unseen, *strange, -3e38 * np.ones(n)], np.float32)


def test_hard_rows() -> None:
    """As the definition, with what is infinite or no number where it is."""
    x = hard_rows(300)
    graph = make("softmax", *x.shape)
    draw = FusedDraw((x,), evaluate(graph, (x,)))
    kernels = online_kernels(graph, 4)
    for kernel, entry in zip(kernels, gir_cases.entries_of(kernels), strict=True):
        (output,) = gir_cases.called(kernel, entry, (x,))
        assert not draw.fault(output), kernel.source.partition(" */")[0]
        assert np.isfinite(output[:4]).all() and np.isnan(output[4:7]).all() and np.isfinite(output[7:]).all()


@pytest.mark.thorough
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    assert gir_cases.sanitized(tmp_path, [kernel for graph in GRAPHS[1:] for kernel in online_kernels(graph, 1)]) == ""


FAULTS = {
    "what was added up is not scaled": (r"sum_total_0_0 \* exp_16\(base_total_0_0 - grown_total_0_0\)", "sum_total_0_0"),
    "lanes are not scaled": (r"fold_add_16\(sum_total_0_0 \* exp_16\(.*\)\);", "fold_add_16(sum_total_0_0);"),
    "the maximum does not grow": (r"base_total_0_0 = grown_total_0_0;", ""),
    "a tail that counts": (r"keep_16\((v_x_0_0), 5, \(-INFINITY\)\)", r"keep_16(\1, 5, 0.0f)"),
    "it begins at minus infinity": (r"splat_16\(\(-3\.4028\d+e\+38f\)\)", "splat_16(-INFINITY)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught(fault: str) -> None:
    kernel = kernel_at(make("softmax", 9, 197), "vector=16 tile=4 rows=1 loop=1 streaming=0 place=dram,online")
    both, x = [kernel, gir_cases.planted(kernel, *FAULTS[fault])], hard_rows(197)
    draw = FusedDraw((x,), evaluate(kernel.operator, (x,)))
    found = [gir_cases.called(one, entry, (x,))[0] for one, entry in zip(both, gir_cases.entries_of(both), strict=True)]
    assert draw.fault(found[0]) == "" and "elements wrong" in draw.fault(found[1])
