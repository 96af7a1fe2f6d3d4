"""A loaded kernel for the tests of how it is called."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym import ConstructionGraph
from gensor_gym.codegen import generate
from gensor_gym.codegen.runtime.c import NativeKernel
from tests.support.called_kernel import OP


@pytest.fixture(scope="module")
def kernel() -> NativeKernel:
    """A product on two threads."""
    schedule = ConstructionGraph(OP, "host", "extended").random_schedule(np.random.default_rng(3))
    return NativeKernel(generate(OP, schedule, "host"), 2)
