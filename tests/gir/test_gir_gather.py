"""C and CUDA of rows that ids choose and of whole numbers: right by float64 under random schedules, nothing is read outside."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym import dataflow, hardware
from gensor_gym.codegen.build import build
from gensor_gym.codegen.families import graph_of
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.measure.emulator.emulator import emulate
from gensor_gym.measure.records.verified import fault_of
from tests.support.gir_gpu_cases import faults_of, kernel_of, random_kernel
from tests.support.thorough import thorough_but

TEXTS = {
    "embedding": """def f(t: float32[11, 37], ids: int64[2, 5]):
    y = gather(t, ids)
    return y
""",
    "turned": """def f(t: float32[9, 20], ids: int32[3, 4]):
    y = gather(t, ids)
    z = transpose(y, order=[2, 0, 1])
    return z
""",
    "numbers": """def f(t: float32[9, 1], ids: int64[13]):
    y = gather(t, ids)
    z = y * 2.0
    return z
""",
    "normalised": """def f(t: float32[11, 24], ids: int64[6], p: float32[6, 24]):
    y = gather(t, ids)
    x = y + p
    top = reduce_max(x, axes=[1])
    e = exp(x - top)
    total = reduce_sum(e, axes=[1])
    z = e / total
    return z
""",
    "heads": """def f(t: float32[5, 3, 8], ids: int64[4, 2]):
    y = gather(t, ids)
    z = transpose(y, order=[2, 1, 0, 3])
    s = reduce_sum(z, axes=[3])
    return s
""",
    "mask": """def f(x: float32[3, 21], seen: bool[3, 21], wide: int64[1, 21], few: int32[3, 1]):
    y = where(seen, x, -inf) * wide + few
    return y
""",
}


CASES = [(name, seed) for name in TEXTS for seed in range(6)]


@pytest.mark.parametrize(("name", "seed"), thorough_but(CASES, *((name, 1) for name in TEXTS)))
def test_random_schedules(name: str, seed: int) -> None:
    graph, hw = dataflow.parse(TEXTS[name]), hardware.get("host")
    schedule = graph_of(graph, hw).random_schedule(np.random.default_rng(seed), 8)
    assert not fault_of(build(graph, schedule, hw))


def of_ids(graph: Dataflow, ids: list[int]) -> np.ndarray:
    hw = hardware.get("host")
    schedule = graph_of(graph, hw).random_schedule(np.random.default_rng(0), 8)
    table = np.random.default_rng(0).standard_normal(graph.inputs[0].shape, np.float32)
    return build(graph, schedule, hw)(table, np.array(ids, np.int64))  # type: ignore[no-any-return]


def test_ids_of_no_row_read_nothing() -> None:
    graph = dataflow.parse(TEXTS["embedding"].replace("[2, 5]", "[4]"))
    found = of_ids(graph, [3, 11, -1, 1 << 62])
    assert np.isnan(found).all(axis=1).tolist() == [False, True, True, True]


@pytest.mark.parametrize("seed", thorough_but(range(6), 1))
def test_cuda_of_random_schedules(seed: int) -> None:
    """Of every graph at once, in the emulator."""
    rng = np.random.default_rng(seed)
    kernels = [random_kernel(dataflow.parse(text), rng) for text in TEXTS.values()]
    assert faults_of(kernels) == {}


def test_cuda_of_rows_that_lie_across_reads_nan_for_ids_outside() -> None:
    """Heads of a table, turned: neighbouring rows are contiguous in memory, but ids choose them."""
    graph = dataflow.parse(TEXTS["turned"])
    table = np.arange(180, dtype=np.float32).reshape(9, 20)
    ids = np.array([[0, 9, 1, 2], [3, -1, 4, 5], [6, 7, 8, 0]], np.int32)
    for schedule in ("rows=4", "vector=1", "tile=2 rows=2"):
        found = np.asarray(emulate(kernel_of(graph, schedule), [table, ids]))
        expected = np.where((ids < 0) | (ids > 8), np.nan, table[np.clip(ids, 0, 8)].transpose(2, 0, 1))
        assert np.array_equal(found, expected, equal_nan=True)
