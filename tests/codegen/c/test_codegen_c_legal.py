"""Generated C is right for random legal schedules of the construction graph: 300 over all operators, awkward extents."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from gensor_gym.codegen.runtime.c import load
from gensor_gym.codegen.runtime.compile import compile_c
from tests.support.c_cases import inputs_of, legal_kernel, random_operator, worst_error
from tests.support.thorough import thorough_but

BATCHES, PER_BATCH = 6, 50


@pytest.mark.parametrize("batch", thorough_but(range(BATCHES), 0))
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
