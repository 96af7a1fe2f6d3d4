"""Kernels of random legal schedules answer rightly, and touch nothing outside their tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.text import parse
from gensor_gym.gir.graph import GirGraph
from gensor_gym.measure.answers.fused import FusedDraw
from tests.support import gir_cases
from tests.support.apart import in_a_process_of_its_own
from tests.support.dataflows import random_dataflow
from tests.support.gir_cases import SUITE, graph_kernels, kernel_of, machine, of_suite
from tests.support.row_dataflows import random_rows_dataflow
from tests.support.row_halves import random_halves_dataflow
from tests.support.row_integers import random_integers_dataflow
from tests.support.thorough import thorough_but

AT_ONCE = 50
"""Kernels that are compiled as one text."""


def suite_kernels(name: str, seeds: range) -> list[Kernel]:
    """Random legal programs of a factory of awkward extents."""
    generators = [np.random.default_rng([seed, SUITE.index(name)]) for seed in seeds]
    return [kernel_of(of_suite(name, rng), rng) for rng in generators]


def check(kernels: list[Kernel]) -> None:
    """None is wrong."""
    for start in range(0, len(kernels), AT_ONCE):
        faults = gir_cases.faults_of(kernels[start : start + AT_ONCE])
        assert not faults, "\n".join(faults)


@pytest.mark.thorough
@pytest.mark.as_shipped
def test_programs_of_the_suite_between_guard_pages() -> None:
    in_a_process_of_its_own(__name__, "check([kernel for name in SUITE for kernel in suite_kernels(name, range(2))])")


@pytest.mark.thorough
@pytest.mark.parametrize("name", SUITE)
def test_many_programs_of_the_suite_between_guard_pages(name: str) -> None:
    in_a_process_of_its_own(__name__, f"check(suite_kernels({name!r}, range(2, 202)))")


GRAPHS = (
    (random_dataflow, 0.35), (random_rows_dataflow, 0.6), (random_integers_dataflow, 0.6), (random_halves_dataflow, 0.6),
)  # fmt: skip
"""Makers of graphs from a seed, and the share of them that are nests: loops over far more points than elements are none."""


@pytest.mark.parametrize("seeds", thorough_but([range(24), range(24, 200), range(200, 400)], range(24)), ids=str)
@pytest.mark.parametrize("make, share", thorough_but(GRAPHS, *GRAPHS[1:]))
def test_random_graphs_between_guard_pages(make: Callable[[int], Dataflow], share: float, seeds: range) -> None:
    assert len(graph_kernels(make, seeds)) >= share * len(seeds)
    in_a_process_of_its_own(__name__, f"check(graph_kernels({make.__name__}, {seeds!r}))")


def test_random_graphs_have_passes_placements_and_several_outputs() -> None:
    graphs = [kernel.operator for kernel in graph_kernels(random_rows_dataflow, range(40))]
    nests = [GirGraph(graph, machine()).nest for graph in graphs if isinstance(graph, Dataflow)]
    assert sum(nest.passes > 1 for nest in nests) >= 5 and sum(len(nest.crossing) > 1 for nest in nests) >= 3
    assert sum(len(nest.stores) > 1 for nest in nests) >= 5


NAMES = {
    "of helpers": "def f(x: float32[8, 9]):\n    max = reduce_max(x, axes=[1])\n    exp = exp(max)\n"
    "    y = exp(x - exp(exp))\n    return y\n",
    "of buffers": "def f(x: float32[5, 9], e_all: float32[5, 9], e_row: float32[5, 9]):\n    top = reduce_max(x, axes=[1])\n"
    "    e = exp(x - top)\n    s = reduce_sum(e, axes=[1])\n    y_all = e / s + e_all * e_row\n    return y_all\n",
    "of sums": "def f(x: float32[4, 5, 9], z: float32[4, 1, 1]):\n    a = reduce_max(x, axes=[2])\n    a_sum0 = exp(a)\n"
    "    digit0 = exp(z)\n    a_0 = x - a_sum0\n    y = a_0 - digit0\n    return y\n",
    "of C": "def f(int: float32[4, 9], größe: float32[4, 9]):\n    t_int = int - größe\n    call = reduce_max(t_int, axes=[1])\n"
    "    row = t_int - call\n    c = row * größe\n    return c\n",
}
"""Names that generated code has uses for of its own."""


def texts_kernels(texts: dict[str, str], count: int = 6) -> list[Kernel]:
    """Some programs of graphs in text."""
    return [kernel_of(parse(text), np.random.default_rng(seed)) for text in texts.values() for seed in range(count)]


@pytest.mark.thorough
def test_any_name_does() -> None:
    in_a_process_of_its_own(__name__, "check(texts_kernels(NAMES))")


EDGES = {
    "a number a row, repeated": "def f(x: float32[4, 8]):\n    top = reduce_max(x, axes=[1])\n    y = broadcast(top, to=[4, 8])\n"
    "    z = x - y\n    return y, z\n",
    "repeated where nothing else is": "def f(x: float32[4, 8]):\n    top = reduce_max(x, axes=[1])\n"
    "    y = broadcast(top, to=[4, 8])\n    return y\n",
    "an input, repeated": "def f(x: float32[4, 1]):\n    y = broadcast(x, to=[4, 19])\n    return y\n",
    "turned, then repeated": "def f(x: float32[4, 8]):\n    e = exp(x)\n    t = transpose(e, order=[1, 0])\n"
    "    y = broadcast(t, to=[8, 4])\n    return y\n",
    "constants of functions": "def f(x: float32[4, 8]):\n    y = x * exp(exp(0.5)) - maximum(1.0 + 0.5, 2.0)\n    return y\n",
    "beyond float32": "def f(x: float32[4, 8]):\n    y = tanh(x * 1e30 * 1e30)\n    return y\n",
    "one input twice in an output": "def f(x: float32[4, 8]):\n    y = concat(x, x, axis=1)\n    return y\n",
    "made late": "def f(x: float32[4, 8], r: float32[4, 8]):\n    s = x + r\n    top = reduce_max(s, axes=[1])\n"
    "    a = exp(s)\n    y = a - top\n    return y\n",
}  # fmt: skip
"""What broke a kernel once, or nearly."""


@pytest.mark.thorough
def test_edges() -> None:
    in_a_process_of_its_own(__name__, "check(texts_kernels(EDGES))")


def test_a_row_of_which_nothing_is_seen_is_no_number() -> None:
    graph = of_suite("masked_softmax", np.random.default_rng(5))
    (m, n), kernels = graph.inputs[0].shape, [kernel_of(graph, np.random.default_rng(seed)) for seed in range(6)]
    rng = np.random.default_rng(0)
    mask = np.where(rng.random((m, n)) < 0.5, 0.0, -np.inf).astype(np.float32)
    mask[0], mask[1:, 0] = -np.inf, 0.0
    inputs = (rng.standard_normal((m, n), dtype=np.float32), mask)
    draw = FusedDraw(inputs, evaluate(graph, inputs))
    for kernel, entry in zip(kernels, gir_cases.entries_of(kernels), strict=True):
        (output,) = gir_cases.called(kernel, entry, inputs)
        assert not draw.fault(output) and np.isnan(output[0]).all() and np.isfinite(output[1:]).all()


def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    kernels = [kernel for name in SUITE for kernel in suite_kernels(name, range(900, 901))]
    assert gir_cases.sanitized(tmp_path, [*kernels, *graph_kernels(random_rows_dataflow, range(900, 902))]) == ""


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*SUITE, "random graphs"])
def test_sanitizers_find_nothing_in_many(tmp_path: Path, name: str) -> None:
    seeds = range(901, 931)
    kernels = suite_kernels(name, seeds) if name in SUITE else graph_kernels(random_rows_dataflow, seeds)
    assert gir_cases.sanitized(tmp_path, kernels) == ""
