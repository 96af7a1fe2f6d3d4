"""What of GPU measurement can be tested without a GPU: compilation in its own process, the emulated backend."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.codegen import nvrtc
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.construction import ConstructionGraph
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.builders import CompileFailed
from gensor_gym.measure.compile_pool import CompilePool
from gensor_gym.measure.measurement import Status

HW = hardware.get("h200")
OP = operators.elementwise("relu", 64)
TEXT = """extern "C" __global__ void entry(const float *x, float *y, float *w) {
  y[threadIdx.x] = fmaxf(x[threadIdx.x], 0);
}"""


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CompilePool:
    if not nvrtc.is_available():
        pytest.skip("NVRTC is not installed")
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path))
    made = CompilePool(size=1, seconds=60.0)
    yield made
    made.close()
    gc.collect()


def test_cubins_are_made_in_a_process_of_their_own(pool: CompilePool) -> None:
    good = Kernel(OP, "cuda", "sm_90", TEXT, (Launch("entry", block=(64, 1, 1)),), 0)
    built = pool(good)
    assert Path(built.path).read_bytes()[:4] == b"\x7fELF"
    assert built.compiler.startswith("nvrtc 13")
    assert built.kernel == good
    bad = Kernel(OP, "cuda", "sm_90", TEXT.replace("fmaxf", "nonsense"), good.launches, 0)
    with pytest.raises(CompileFailed, match="nonsense"):
        pool(bad)
    assert pool(good).path == built.path


def test_emulated_says_whether_a_kernel_is_right() -> None:
    op = operators.gemm(m=16, n=12, k=10)
    graph = ConstructionGraph(op, HW)
    schedule = graph.random_schedule(np.random.default_rng(0))
    backend = get_backend("emulated", HW)
    (result,) = backend.measure(op, [schedule], HW)
    assert result.status is Status.OK, result.error
    assert result.samples == ()
    assert result.seconds == float("inf")
    assert result.conditions["timed"] is False
    assert result.digest == backend.digest(op, schedule, HW)
