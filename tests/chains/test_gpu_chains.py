"""Chains on GPUs: random programs are right in the emulator within the propagated bounds."""

from __future__ import annotations

import pytest

from tests.support.chain_gpu_cases import random_attention, random_chain, random_kernels
from tests.support.gir_gpu_cases import faults_of
from tests.support.thorough import thorough_but


@pytest.mark.parametrize("seeds", thorough_but([range(8), *(range(s, s + 32) for s in range(8, 136, 32))], range(8)), ids=str)
def test_random_chains_are_right(seeds: range) -> None:
    kernels = random_kernels(map(random_chain, seeds), seeds.start)
    assert len(kernels) > 0.7 * len(seeds) and faults_of(kernels) == {}


@pytest.mark.parametrize("seeds", thorough_but([range(6), *(range(s, s + 20) for s in range(6, 146, 20))], range(6)), ids=str)
def test_random_attention_is_right(seeds: range) -> None:
    kernels = random_kernels(map(random_attention, seeds), seeds.start)
    assert len(kernels) == len(seeds) and faults_of(kernels) == {}
