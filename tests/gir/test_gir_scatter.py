"""C and CUDA of scatters: rows joined to the rows of a table that ids select, right by float64 under random schedules."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym import dataflow, hardware
from gensor_gym.codegen.build import build
from gensor_gym.codegen.families import graph_of
from gensor_gym.codegen.runtime.c import load
from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.text import text_of
from gensor_gym.gir.nest import row_nest
from gensor_gym.gir.parts import in_parts
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.measure.emulator.emulator import emulate
from gensor_gym.measure.records.verified import fault_of
from tests.support.gir_gpu_cases import faults_of, kernel_of, random_kernel
from tests.support.thorough import thorough_but

TEXTS = {
    "rows": """def f(x: float32[13, 37], ids: int64[13]):
    y = scatter_sum(x, ids, rows=7)
    return y
""",
    "numbers": """def f(x: float32[2, 9], ids: int32[2, 9]):
    y = scatter_max(x, ids, rows=40)
    return y
""",
    "edges": """def f(t: float32[11, 24], ids: int64[50], to: int64[50], w: float32[50, 1]):
    y = gather(t, ids)
    z = y * w
    s = scatter_prod(z, to, rows=11, first=-0.5)
    return s
""",
    "whole": """def f(x: int64[50, 3], to: float32[50]):
    s: int64 = scatter_sum(x, to, rows=11, first=4)
    return s
""",
    "channels first": """def f(x: float32[5, 20], ids: int64[20]):
    t = transpose(x, order=[1, 0])
    y = scatter_max(t, ids, rows=6, first=0)
    return y
""",
    "halves": """def f(x: bfloat16[9, 2, 4], ids: int64[9]):
    y = scatter_sum(x, ids, rows=3)
    return y
""",
}


def test_long_rows_are_not_cut_in_parts() -> None:
    """Cut in parts, a row of 20,001 columns would write past its end, because the last part is shorter."""
    graph, hw = dataflow.parse("""def f(x: float32[1, 20001], ids: int64[1]):
    y = scatter_sum(x, ids, rows=2)
    return y
"""), hardware.get("host")
    schedule = graph_of(graph, hw).random_schedule(np.random.default_rng(0), 8)
    assert not fault_of(build(graph, schedule, hw)) and in_parts(row_nest(graph), 2).parts == 1


@pytest.mark.parametrize(("name", "seed"), thorough_but([(name, seed) for name in TEXTS for seed in range(4)], *(
    (name, 1) for name in TEXTS)))  # fmt: skip
def test_random_schedules(name: str, seed: int) -> None:
    graph, hw = dataflow.parse(TEXTS[name]), hardware.get("host")
    assert dataflow.parse(text_of(graph)) == graph
    schedule = graph_of(graph, hw).random_schedule(np.random.default_rng(seed), 8)
    assert not fault_of(build(graph, schedule, hw))


def test_each_thread_owns_rows_and_ids_of_no_row_are_left_out() -> None:
    """Sums in the order of the rows, so any number of threads gives the same bits; an empty row keeps its first number."""
    graph, hw = dataflow.parse(TEXTS["rows"].replace("13", "999").replace("rows=7", "rows=7, first=0.25")), hardware.get("host")
    rng = np.random.default_rng(3)
    x, ids = rng.standard_normal((999, 37), np.float32), rng.choice([0, 1, 1, 3, 6, 7, -1, 1 << 40], 999)
    built = build(graph, graph_of(graph, hw).initial(), hw)
    expected = np.full((7, 37), 0.25, np.float32)
    for row, place in zip(x, ids, strict=True):
        if 0 <= place < 7:
            expected[place] += row
    for threads in (1, 2):
        assert np.array_equal(load(built, threads)(x, ids), expected)
    (found,) = evaluate(graph, (x, ids))
    assert (np.abs(found.value - expected) <= found.error).all()
    for schedule in ("rows=1", "vector=4 tile=2 rows=2"):
        assert np.array_equal(np.asarray(emulate(kernel_of(graph, schedule), [x, ids])), expected)


@pytest.mark.parametrize("field", ["rows=2", "loop=4", "streaming=1"])
def test_rows_of_one_id_are_joined_in_order(field: str) -> None:
    graph = graph_of(dataflow.parse(TEXTS["rows"]), hardware.get("host"))
    assert graph.is_legal(GirSchedule.parse("vector=4")) and not graph.is_legal(GirSchedule.parse(f"vector=4 {field}"))


def test_cuda_of_random_schedules() -> None:
    rng = np.random.default_rng(0)
    assert faults_of([random_kernel(dataflow.parse(text), rng) for text in TEXTS.values()]) == {}


@pytest.mark.parametrize(("more", "returns"), [
    ("z = y + 1.0", "z"), ("z = x * 2.0", "y, z"), ("z = reduce_sum(x, axes=[1])", "y, z"),
])  # fmt: skip
def test_a_scatter_ends_its_kernel(more: str, returns: str) -> None:
    text = TEXTS["rows"].replace("    return y", f"    {more}\n    return {returns}")
    with pytest.raises(ValueError, match="expected one by itself|needs a kernel of its own"):
        row_nest(dataflow.parse(text))


def test_products_beyond_float32_have_no_bound() -> None:
    """A product may leave float32's range on the way and come back: 1e30 * 1e30 * 1e-30 is infinite."""
    graph = dataflow.parse("def f(x: float32[3, 1], ids: int64[3]):\n    y = scatter_prod(x, ids, rows=2)\n    return y\n")
    (found,) = evaluate(graph, (np.array([[1e30], [1e30], [1e-30]], np.float32), np.zeros(3, np.int64)))
    assert np.isinf(found.error[0, 0]) and (found.value[1, 0], found.error[1, 0]) == (1.0, 0.0)
