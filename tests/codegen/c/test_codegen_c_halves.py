"""C kernels of 16-bit floats: every kind of operator, random legal schedules, with and without the processor's conversions."""

from __future__ import annotations

import random

import pytest

from gensor_gym.hardware.cpuinfo import cpu_info
from tests.support.c_cases import HALVES, check, legal_kernel, machine, random_operator, random_program
from tests.support.thorough import thorough_but

ARCHES = {"x86-64": "sse2", "haswell": "f16c", "skylake-avx512": "avx512bw", "native": ""}
"""What the code is compiled for -> the flag that this machine must have to run it."""
BATCHES, PER_BATCH = 8, 25


@pytest.mark.parametrize("batch", thorough_but(range(BATCHES), 0))
def test_random_legal_schedules(batch: int) -> None:
    kernels = [legal_kernel(9000 + PER_BATCH * batch + i, dtypes=HALVES) for i in range(PER_BATCH)]
    check(kernels[::2], 1)
    check(kernels[1::2], 2)


def test_the_batches_cover_every_operator() -> None:
    seen = {random_operator(random.Random(9000 + i), HALVES).name for i in range(BATCHES * PER_BATCH)}
    assert len(seen) == 9


@pytest.mark.parametrize("arch", thorough_but(ARCHES, "x86-64"))
def test_random_programs_on_every_instruction_set(arch: str) -> None:
    if ARCHES[arch] not in cpu_info().flags | {""}:
        pytest.skip(f"this CPU does not run code for {arch}")
    check([random_program(seed, machine((16, 8, 4)[seed % 3], arch), HALVES) for seed in range(12)], 1)
