"""Kernels of chains: right within the propagated bound between pages that nobody may touch, and under sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from gensor_gym.hardware.compiler import find_compiler
from tests.support.apart import in_a_process_of_its_own
from tests.support.chain_cases import chain_kernels
from tests.support.gir_cases import faults_of, sanitized
from tests.support.thorough import thorough_but

sanitizers = pytest.mark.skipif(find_compiler().name != "gcc", reason="the sanitizers are taken from gcc")


def check(seeds: range) -> None:
    """None is wrong."""
    kernels = chain_kernels(seeds)
    assert len(kernels) > 0.8 * len(seeds) and faults_of(kernels) == []


@pytest.mark.as_shipped
@pytest.mark.parametrize("seeds", thorough_but([range(start, start + 20) for start in range(0, 200, 20)], range(20)), ids=str)
def test_random_chains_between_guard_pages(seeds: range) -> None:
    in_a_process_of_its_own(__name__, f"check({seeds!r})")


@pytest.mark.thorough
@sanitizers
@pytest.mark.parametrize("seeds", thorough_but([range(200, 204), range(204, 234)], range(200, 204)), ids=str)
def test_sanitizers_find_nothing(tmp_path: Path, seeds: range) -> None:
    assert sanitized(tmp_path, chain_kernels(seeds)) == ""
