"""CUDA text is right for random legal schedules of the construction graph: 64 in the emulator, 60 through NVRTC."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym.codegen import generate
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.compiled import plain
from gensor_gym.graph.resources import shared_bytes_of, threads_of
from gensor_gym.operators.types import Operator
from tests.codegen.cuda.test_codegen_cuda import ARCHES, MACHINES, check
from tests.support.cuda_schedules import MAX_THREADS, OPERATORS
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import needs_nvrtc

BATCHES = 4


def legal_kernel(op: Operator, machine: str, rng: np.random.Generator) -> Kernel:
    """A random legal schedule of the extended space; its shared memory is what legality counted."""
    graph = ConstructionGraph(op, machine, space="extended")
    while True:
        schedule = graph.random_schedule(rng, steps=int(rng.integers(10, 50)))
        if threads_of(plain(schedule.row), graph.tables.ints) <= MAX_THREADS:
            break
    assert graph.is_legal(schedule)
    kernel = generate(op, schedule, graph.hardware)
    assert max(launch.shared_bytes for launch in kernel.launches) <= shared_bytes_of(plain(schedule.row), graph.tables.ints)
    return kernel


@pytest.mark.parametrize("batch", thorough_but(range(BATCHES), 2))
def test_random_legal_schedules_are_right(batch: int) -> None:
    rng = np.random.default_rng([7, batch])
    ops = [OPERATORS[int(i)] for i in rng.permutation(len(OPERATORS))[:16]]
    check([legal_kernel(op, "h200", rng) for op in ops], rng)


@pytest.mark.thorough
@needs_nvrtc
@pytest.mark.parametrize("arch", thorough_but(ARCHES, "sm_75"))
def test_nvrtc_takes_random_legal_schedules(arch: str) -> None:
    rng = np.random.default_rng([8, ARCHES.index(arch)])
    for op in OPERATORS[:20]:
        compiled = nvrtc.compile_cubin(legal_kernel(op, MACHINES[arch], rng), arch)
        assert 0 < compiled.registers <= 255
        assert "warning" not in compiled.log
