"""Generated C touches nothing outside its tensors: under the sanitizers, and next to pages that may not be touched."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from gensor_gym.codegen.c.codegen import generate_c
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.c import load_entry
from gensor_gym.codegen.runtime.threads import pointers, runtime
from gensor_gym.operators.types import ARRAY_DTYPE
from tests.support.apart import in_a_process_of_its_own
from tests.support.c_cases import compiled, inputs_of, machine, random_program, worst_error
from tests.support.gir_cases import sanitized_apart
from tests.support.guarded import guarded


@pytest.mark.thorough
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    # Without AVX-512 the masked helpers are plain loops, which the sanitizer sees through.
    assert sanitized_apart(tmp_path, [generate_c(random_program(seed)) for seed in range(300, 320)]) == ""


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_sanitizers_find_nothing_in_many(tmp_path: Path, block: int) -> None:
    seeds = range(4000 + 30 * block, 4030 + 30 * block)
    assert sanitized_apart(tmp_path, [generate_c(random_program(seed)) for seed in seeds]) == ""


def run_between_guard_pages(seeds: range) -> None:
    """Run kernels on tensors at the edge of accessible memory, and compare."""
    for seed in seeds:
        run_kernel_between_guard_pages(generate_c(random_program(seed, machine())))


def run_kernel_between_guard_pages(kernel: Kernel) -> None:
    """Run a kernel on tensors at either edge of accessible memory, and compare."""
    op, entry, team = kernel.operator, load_entry(kernel), runtime(2)
    inputs = inputs_of(op)
    for at_end in (True, False):
        given = [guarded(array, at_end) for array in inputs]
        output = guarded(np.full(op.output.shape, 0, ARRAY_DTYPE[op.output.dtype]), at_end)
        workspace = guarded(np.full(kernel.workspace_bytes, 0xFF, np.uint8), at_end)
        entry(pointers(given), output.ctypes.data, workspace.ctypes.data, ctypes.byref(team))
        assert worst_error(op, inputs, output) <= 1.0, f"{op}\n{kernel.source}"


@pytest.mark.thorough
def test_tensors_between_guard_pages() -> None:
    seeds = range(500, 512)
    compiled(random_program(seed, machine()) for seed in seeds)
    in_a_process_of_its_own(__name__, f"run_between_guard_pages({seeds!r})")
