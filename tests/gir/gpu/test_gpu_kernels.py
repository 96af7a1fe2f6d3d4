"""CUDA kernels of fused operators in the emulator: right on every schedule, and within their tensors, barriers and masks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gensor_gym import codegen
from gensor_gym.codegen.gir.cuda.generate import generate_gir_cuda
from gensor_gym.codegen.gir.generate import GirProgram
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.scalars import SCALARS
from gensor_gym.dataflow.text import parse
from gensor_gym.gir.nest import row_nest
from gensor_gym.gir.schedule import GirSchedule
from tests.gir.test_gir_igraph import BESIDE
from tests.gir.test_gir_kernels import EDGES, NAMES
from tests.support.dataflows import random_dataflow
from tests.support.gir_cases import SUITE, graph_kernels
from tests.support.gir_gpu_cases import faults_of, gpu, kernel_of, random_kernel, suite_kernels
from tests.support.row_dataflows import random_rows_dataflow
from tests.support.row_halves import random_halves_dataflow
from tests.support.row_integers import random_integers_dataflow

CHOSEN = {
    "one number a lane, all between kernels": ("softmax(m=7, n=77)", "place=dram,dram"),
    "rows in registers, 16 bytes a load": ("softmax(m=9, n=128)", "vector=4 tile=2 rows=2 place=reg,reg"),
    "rows in shared memory, four warps a row": ("layernorm(m=5, n=500)", "vector=4 rows=2 loop=4 place=sram,sram"),
    "two outputs, past the caches": ("add_layernorm(m=6, n=256)", "vector=4 rows=1 streaming=1 place=reg,reg"),
    "a row for many blocks, and a sum of their parts": ("norm(m=64, n=199)", "vector=4 loop=1"),
    "several kernels for many blocks": ("masked_softmax(m=2, n=1100)", "loop=1 place=dram,dram"),
    "tiles that are turned": ("transpose_relu(a=3, b=31, c=33, d=5)", "tile=4 rows=4"),
    "parts of a row": ("rope(t=3, h=2, d=24)", "vector=4 rows=2"),
    "a sum with a running maximum": ("softmax(m=3, n=197)", "vector=4 tile=2 rows=2 place=dram,online"),
    "the same for several warps a row": ("softmax(m=5, n=1100)", "vector=1 tile=2 rows=1 loop=4 place=sram,online"),
    "the same for many blocks": ("masked_softmax(m=2, n=2500)", "loop=1 place=dram,online"),
    "rows that are written once": ("kv_concat(h=2, t=3, d=8)", "vector=4"),
}  # fmt: skip
"""What is shown -> (operator, schedule)."""


@pytest.fixture(scope="module")
def chosen() -> tuple[list[Kernel], dict[int, str]]:
    kernels = [codegen.generate(op, GirSchedule.parse(schedule), gpu()) for op, schedule in CHOSEN.values()]
    return kernels, faults_of(kernels)


@pytest.mark.parametrize("number", range(len(CHOSEN)), ids=list(CHOSEN))
def test_programs_of_every_kind_are_right(chosen: tuple[list[Kernel], dict[int, str]], number: int) -> None:
    assert chosen[1].get(number, "") == ""


def test_programs_are_of_the_kinds_that_they_show(chosen: tuple[list[Kernel], dict[int, str]]) -> None:
    texts = dict(zip(CHOSEN, chosen[0], strict=True))
    launches = {name: len(kernel.launches) for name, kernel in texts.items()}
    assert launches["rows in registers, 16 bytes a load"] == 1 and launches["one number a lane, all between kernels"] == 2
    assert launches["a row for many blocks, and a sum of their parts"] == 2
    assert launches["several kernels for many blocks"] == 5 and launches["the same for many blocks"] == 3
    assert "float4" in texts["rows in registers, 16 bytes a load"].source
    assert "__stcs" in texts["two outputs, past the caches"].source
    assert "WIDE + 1" in texts["tiles that are turned"].source
    assert "digit1 == 0" in texts["rows that are written once"].source


@pytest.mark.thorough
@pytest.mark.parametrize("name", SUITE)
def test_many_programs_of_the_suite(name: str) -> None:
    faults = faults_of(suite_kernels(name, range(30)))
    assert not faults, "\n".join(faults.values())


@pytest.mark.parametrize("make_graph", [random_integers_dataflow, random_halves_dataflow])
def test_programs_of_random_graphs_of_other_types(make_graph: Callable[[int], Dataflow]) -> None:
    kernels = graph_kernels(make_graph, range(12), random_kernel)
    assert len(kernels) >= 6 and faults_of(kernels) == {}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("make_graph", "count"),
    [(random_dataflow, 100), (random_rows_dataflow, 100), (random_integers_dataflow, 100), (random_halves_dataflow, 260)],
)
def test_programs_of_random_graphs(make_graph: Callable[[int], Dataflow], count: int) -> None:
    kernels = graph_kernels(make_graph, range(count), random_kernel)
    faults = faults_of(kernels)
    assert len(kernels) >= 0.4 * count and not faults, "\n".join(faults.values())


@pytest.mark.thorough
def test_names_and_edges() -> None:
    texts = [*NAMES.values(), *EDGES.values()]
    faults = faults_of([random_kernel(parse(text), np.random.default_rng(seed)) for text in texts for seed in range(4)])
    assert not faults, "\n".join(faults.values())


def test_a_placement_without_code_is_refused() -> None:
    nest = row_nest(parse(BESIDE))
    with pytest.raises(ValueError, match="x is in SRAM when the kernel ends after pass 1, and pass 2 reads it"):
        generate_gir_cuda(GirProgram(nest, GirSchedule.parse("place=sram,dram"), gpu()))


def test_text_does_not_depend_on_names() -> None:
    plain = "def f(x: float32[4, 40]):\n    top = reduce_max(x, axes=[1])\n    y = exp(x - top)\n    return y\n"
    renamed = plain.replace("def f", "def softmax").replace("top", "zz")
    one, other = (kernel_of(parse(text), "vector=4 place=reg").source.partition("\n")[2] for text in (plain, renamed))
    assert one.replace("top", "zz") == other


def test_every_scalar_function_is_right() -> None:
    """Each in a map of its own, of numbers on both sides of 0, and of 0 to 2 where others have no value."""
    positive = ("log", "sqrt", "rsqrt")
    bodies = [f"{name}({', '.join('xyz'[: scalar.arity])})" for name, scalar in SCALARS.items() if name not in positive]
    bodies += [f"{name}(absolute(x) + 0.5)" for name in positive] + ["log1p(absolute(x))"]
    lines = "\n".join(f"    v{number} = {body}" for number, body in enumerate(bodies))
    outputs = ", ".join(f"v{number}" for number in range(len(bodies)))
    graph = parse(f"def scalars(x: float32[6, 40], y: float32[6, 40], z: float32[6, 40]):\n{lines}\n    return {outputs}\n")
    assert not faults_of([random_kernel(graph, np.random.default_rng(0))])
