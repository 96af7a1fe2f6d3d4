"""Default tests compile kernels quickly: C without optimisation, CUDA for the emulator without sanitizers.

A third to a half of the time of tests of generated code was gcc's. What a kernel computes does not depend on either. Tests
marked `as_shipped` compile as users do, one case of each family at least, and so do thorough ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.hardware.compiler import Compiler
from gensor_gym.measure.emulator.emulator import EmulatedKernels

FOLDERS = ("tests/codegen/", "tests/gir/", "tests/chains/", "tests/networks/", "tests/frontends/", "tests/measure/emulator/")
"""Tests of generated code; others time kernels."""
MARK = "as_shipped"

_flags, _begin = Compiler.flags, EmulatedKernels.__init__
_quick = False


def _quick_flags(self: Compiler, arch: str, lanes: int, shared: bool = True) -> tuple[str, ...]:
    """See `Compiler.flags`."""
    return tuple("-O0" if _quick and flag == "-O2" else flag for flag in _flags(self, arch, lanes, shared))


def _quick_begin(self: EmulatedKernels, kernels: Sequence[Kernel], sanitize: bool = True) -> None:
    """See `EmulatedKernels`."""
    _begin(self, kernels, sanitize and not _quick)


def pytest_configure() -> None:
    """For the whole session, which decides test by test."""
    Compiler.flags = _quick_flags  # type: ignore[method-assign]
    EmulatedKernels.__init__ = _quick_begin  # type: ignore[method-assign]


def pytest_unconfigure() -> None:
    """As before."""
    Compiler.flags, EmulatedKernels.__init__ = _flags, _begin  # type: ignore[method-assign]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Whether this test's kernels, and those of fixtures that it is the first to ask for, are compiled quickly."""
    global _quick
    whole = any(item.get_closest_marker(name) for name in (MARK, "thorough", "slow"))
    _quick = not whole and item.nodeid.startswith(FOLDERS)
