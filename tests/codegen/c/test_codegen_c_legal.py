"""Generated C is right for random legal schedules of the construction graph: 300 over all operators, awkward extents."""

from __future__ import annotations

import random

import pytest

from tests.support.c_cases import check, legal_kernel, random_operator
from tests.support.thorough import thorough_but

BATCHES, PER_BATCH = 6, 50


@pytest.mark.parametrize("batch", thorough_but(range(BATCHES), 0))
def test_random_legal_schedules(batch: int) -> None:
    kernels = [legal_kernel(5000 + PER_BATCH * batch + i) for i in range(PER_BATCH)]
    check(kernels[::2], 1)
    check(kernels[1::2], 2)


def test_the_batches_cover_every_operator() -> None:
    seen = {random_operator(random.Random(5000 + i)).name for i in range(BATCHES * PER_BATCH)}
    assert len(seen) == 9
