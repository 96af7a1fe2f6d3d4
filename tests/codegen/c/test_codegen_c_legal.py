"""Generated C is right for random legal schedules of the construction graph: 300 over all operators, awkward extents."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gensor_gym.codegen import generate
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.c import load
from gensor_gym.codegen.runtime.compile import compile_c
from gensor_gym.construction import ConstructionGraph
from tests.support.c_cases import inputs_of, machine, random_operator, worst_error
from tests.support.thorough import thorough_but

BATCHES, PER_BATCH = 6, 50


def legal_kernel(seed: int) -> Kernel:
    """A random operator with a random legal schedule of the extended space, for one of three vector widths."""
    rng = random.Random(seed)
    op, hw = random_operator(rng), machine(rng.choice((16, 16, 8, 4)))
    graph = ConstructionGraph(op, hw, space="extended")
    schedule = graph.random_schedule(np.random.default_rng(seed))
    assert graph.is_legal(schedule)
    return generate(op, schedule, hw)


@pytest.mark.parametrize("batch", thorough_but(range(BATCHES), 0, 3))
def test_random_legal_schedules(batch: int) -> None:
    kernels = [legal_kernel(5000 + PER_BATCH * batch + i) for i in range(PER_BATCH)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compile_c, kernels))
    for i, kernel in enumerate(kernels):
        op, inputs = kernel.operator, inputs_of(kernel.operator)
        error = worst_error(op, inputs, load(kernel, 1 + i % 2)(*inputs))
        assert error <= 1.0, f"{op}: {error} times the bound\n{kernel.source}"


def test_the_batches_cover_every_operator() -> None:
    seen = {random_operator(random.Random(5000 + i)).name for i in range(BATCHES * PER_BATCH)}
    assert len(seen) == 9
