"""What is no number comes through maxima and minima as it does in NumPy and torch, wherever it stands."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gensor_gym.codegen.gir.generate import GirProgram, generate_gir
from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.text import parse
from gensor_gym.gir.graph import GirGraph
from gensor_gym.measure.answers.fused import FusedDraw
from gensor_gym.measure.emulator.emulator import EmulatedKernels
from tests.support import gir_cases, gir_gpu_cases
from tests.support.gir_cases import kernel_at, machine

N = 43
GRAPH = parse(
    f"def numbers(x: float32[{N + 2}, {N}], z: float32[{N + 2}, {N}]):\n"
    "    top = reduce_max(x, axes=[1])\n    a = maximum(x, z)\n    b = minimum(z, x)\n    c = maximum(0.5, x)\n"
    "    d = minimum(x, 0.5)\n    e = maximum(z, top)\n    return top, a, b, c, d, e\n"
)


def draw() -> FusedDraw:
    """A NaN in another column of each row, of both signs, beside infinities; two rows without."""
    rng = np.random.default_rng(0)
    x, z = (rng.standard_normal((N + 2, N), dtype=np.float32) for _ in range(2))
    x[np.arange(N), np.arange(N)] = np.where(np.arange(N) % 2, np.nan, np.copysign(np.nan, -1.0))
    x[::3, 5], z[::4, 7], x[N + 1] = np.inf, np.nan, -np.inf
    return FusedDraw((x, z), evaluate(GRAPH, (x, z)))


HEADERS = (
    "vector=16 tile=2 rows=2 loop=1", "vector=8 tile=1 rows=1 loop=4", "vector=4 tile=4 rows=4 loop=1",
    "vector=1 tile=2 rows=1 loop=1",
)  # fmt: skip


@pytest.mark.parametrize("header", HEADERS)
def test_kernels_in_c(header: str) -> None:
    kernel = kernel_at(GRAPH, f"{header} streaming=0 place=dram")
    (entry,) = gir_cases.entries_of([kernel])
    given = draw()
    outputs = gir_cases.called(kernel, entry, given.inputs)
    assert not given.fault(outputs)
    assert np.isnan(outputs[0][:N]).all() and outputs[0][N + 1] == -np.inf and np.isnan(outputs[5][:N]).all()


def test_without_instructions_for_it() -> None:
    """Plain C of the same helpers, as for a processor that has no masks."""
    kernel = kernel_at(GRAPH, f"{HEADERS[0]} streaming=0 place=dram")
    text, count = re.subn("__AVX512F__|__AVX512VL__", "GG_NONE", gir_cases.together([kernel]))
    (entry,) = gir_cases.loaded(text, 1)
    assert count and not draw().fault(gir_cases.called(kernel, entry, draw().inputs))


def test_kernels_in_cuda() -> None:
    kernel = gir_gpu_cases.kernel_of(GRAPH, "vector=4 tile=2 rows=2 loop=1 streaming=0 place=dram")
    with EmulatedKernels([kernel]) as program:
        assert not draw().fault(program.run(0, draw().inputs, 0))


def test_a_constant_costs_no_comparison() -> None:
    """Of a number and what may be none the second is handed on, whichever comes first in the text."""
    source = kernel_at(GRAPH, f"{HEADERS[0]} streaming=0 place=dram").source
    body = source[source.index("struct call {") :]
    assert "max_16(v_x_0_0, splat_16(0.5f))" in body and "maximum_16(v_x_0_0, v_z_0_0)" in body


def test_stores_of_a_row_are_in_order() -> None:
    """Between two stores of one row's tile none is moved, so that those of one line of the cache join."""
    graph = GirGraph(parse("def f(x: float32[8, 58], b: float32[8, 1]):\n    y = exp(x * b)\n    return y\n"), machine())
    source = generate_gir(GirProgram(graph.nest, graph.parse("vector=16 tile=2 rows=1 loop=1 streaming=0"), machine())).source
    assert "store_16(t_y_2_at0 + 0, v_y_0_0);\n        in_order();\n        store_16(t_y_2_at0 + 16, v_y_0_1);\n" in source
