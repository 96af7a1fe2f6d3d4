"""Faults planted in the kernel of a module of tests: its DAMAGED, with each of its FAULTS that is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gensor_gym.measure.emulator.emulator import EmulatedKernels
from tests.support.thorough import asked
from tests.support.wgmma_kernels import faults_of, with_faults


@pytest.fixture(scope="module")
def planted(request: pytest.FixtureRequest) -> list[Any]:
    """Faults that tests of this session ask for."""
    return asked(request, request.module.FAULTS)


@pytest.fixture(scope="module")
def damaged(request: pytest.FixtureRequest, planted: list[Any]) -> Iterator[EmulatedKernels]:
    """The sound kernel, which is right for every seed that faults are tried with, then one with each fault that is asked for."""
    with EmulatedKernels(with_faults(request.module.DAMAGED, request.module.FAULTS, planted)) as program:
        assert faults_of(program, 0, seeds=3) == []
        yield program
