"""Compiled functions that others call by name: one copy of each, and cached callers find it in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from gensor_gym.cost import model
from gensor_gym.cost.gpu.gpu import latency_gpu
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.graph.compiled import compiled, lean, outlined
from gensor_gym.graph.compiling.units import Unit
from tests.support.graph_walks import graph_of

ROOT = Path(__file__).resolve().parents[2]

if numba.config.DISABLE_JIT:
    pytest.skip("nothing is compiled", allow_module_level=True)


def test_callers_have_no_copy_of_the_model() -> None:
    """Nor is it compiled for Python beside: what Python calls is the function that they call."""
    graph = graph_of("gemm(m=64, n=48, k=40)", "h200", "compact")
    ints, floats, row = graph.tables.ints, graph.tables.floats, graph.initial().row.copy()
    asked, terms = numba.njit(model.fill_latencies.py_func), np.empty(NUM_TERMS)
    asked(row[None], ints, floats, graph.room(), seconds := np.empty(1))
    assert latency_gpu(row, ints, floats, terms) == seconds[0] == graph.latency(graph.initial())
    (text,) = asked.inspect_llvm().values()
    (made,) = [found for found in latency_gpu.overloads.values()]
    assert isinstance(latency_gpu, Unit) and f"declare i32 @{made.fndesc.mangled_name}(" in text
    assert f"@{made.fndesc.mangled_name}(" not in text.replace("declare i32 @", "").replace("call i32 @", "")


@lean
def weighted(values, weights):  # noqa: ANN001, ANN201
    found = 0.0
    for i in range(values.shape[0]):
        found += values[i] * weights[i]
    return found


@compiled
def once(values):  # noqa: ANN001, ANN201
    made = np.sqrt(values)
    return weighted(made, values)


@compiled
def twice(values):  # noqa: ANN001, ANN201
    return once(values) + once(values + 1.0)


def test_an_entry_that_others_call_is_a_part_of_them() -> None:
    values = np.random.default_rng(0).random(9)
    assert twice(values) == once.py_func(values) + once.py_func(values + 1.0) and not once.overloads
    assert once(values) == once.py_func(values) and len(once.overloads) == 1


def test_a_unit_stands_at_the_top_of_its_module() -> None:
    with pytest.raises(ValueError, match=r"<locals>\.inner is inside of a function or a class"):

        @outlined
        def inner(value):  # noqa: ANN001, ANN202
            return value


SHARED = """
import numpy as np
from gensor_gym.graph.compiled import compiled, lean, outlined
@outlined
def product(a, b):
    found = 0.0
    for i in range(a.shape[0]):
        found += a[i] * b[i]
    return found
@outlined
def square(a):
    return product(a, a) + 1.0
@lean
def doubled(a):
    return 2.0 * square(a)
@compiled
def single(a):
    return doubled(a)
@compiled
def both(a):
    return single(a) + product(a, a)
"""
ASKED = """
import sys
import numpy as np
import shared
print(getattr(shared, sys.argv[1])(np.arange(4.0)))
for name in ("product", "square", "single", "both"):
    stats = getattr(shared, name).stats
    print(name, sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


@pytest.mark.thorough
def test_cached_callers_find_their_units_in_another_process(tmp_path: Path) -> None:
    """Also where a unit was compiled by another process than its caller, and where it is no longer on disk."""
    (tmp_path / "shared.py").write_text(SHARED)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "numba"), "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}

    def asked(name: str) -> list[str]:
        command = [sys.executable, "-c", ASKED, name]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert asked("single") == ["30.0", "product 0 1", "square 0 1", "single 0 1", "both 0 0"]
    assert asked("both") == ["44.0", "product 1 0", "square 1 0", "single 0 0", "both 0 1"]
    for kept in (tmp_path / "numba").rglob("shared.product-*"):
        kept.unlink()
    assert asked("both") == ["44.0", "product 0 1", "square 1 0", "single 0 0", "both 1 0"]
