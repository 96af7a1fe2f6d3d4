"""Kernels of chains: right within the propagated bound between pages that nobody may touch, and under sanitizers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gensor_gym.hardware.compiler import find_compiler
from tests.support.chain_cases import chain_kernels
from tests.support.gir_cases import faults_of, sanitized
from tests.support.thorough import thorough_but

sanitizers = pytest.mark.skipif(find_compiler().name != "gcc", reason="the sanitizers are taken from gcc")


def check(seeds: range) -> None:
    """None is wrong."""
    kernels = chain_kernels(seeds)
    assert len(kernels) > 0.8 * len(seeds) and faults_of(kernels) == []


@pytest.mark.parametrize("seeds", thorough_but([range(start, start + 20) for start in range(0, 200, 20)], range(20)), ids=str)
def test_random_chains_between_guard_pages(seeds: range) -> None:
    command = [sys.executable, "-X", "faulthandler", "-c", f"from tests.chains.test_chain_kernels import *\ncheck({seeds!r})"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@sanitizers
@pytest.mark.parametrize("seeds", thorough_but([range(200, 204), range(204, 234)], range(200, 204)), ids=str)
def test_sanitizers_find_nothing(tmp_path: Path, seeds: range) -> None:
    assert sanitized(tmp_path, chain_kernels(seeds)) == ""
