"""int8 products in groups of four: exact on every instruction set, at the ends of the range, whatever the remainders."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.c.codegen import generate_c
from gensor_gym.codegen.c.plan import make_plan
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import Program
from gensor_gym.codegen.runtime.c import load
from gensor_gym.hardware.cpuinfo import cpu_info
from gensor_gym.operators.types import Operator
from tests.codegen.c.test_codegen_c_memory import run_kernel_between_guard_pages
from tests.support.apart import in_a_process_of_its_own
from tests.support.c_cases import ARCHES, compiled, inputs_of, machine, needs, program
from tests.support.gir_cases import sanitized_apart
from tests.support.thorough import thorough_but


def gemm(m: int, n: int, k: int) -> Operator:
    return operators.gemm(m=m, n=n, k=k, dtype="int8")


def assert_exact(made: Iterable[Program | Kernel]) -> None:
    for kernel in compiled(made):
        op = kernel.operator
        ends = [np.full(t.shape, -128, t.dtype) for t in op.inputs[:2]]
        for inputs in (inputs_of(op), (*ends, *inputs_of(op)[2:])):
            for threads in (1, 2):
                np.testing.assert_array_equal(load(kernel, threads)(*inputs), op.reference(*inputs), str(op))


@pytest.mark.parametrize("arch", list(ARCHES))
def test_every_instruction_set_and_width(arch: str) -> None:
    needs(arch)
    tiles = (6, 21, 3), (12, 42, 9), (24, 84, 18)  # chunks of 16, 4 and 1 lanes
    cases = [program(gemm(61, 83, 71), *tiles, hw=machine(lanes, arch), pack_b=1, pack_a=lanes % 3 % 2)
             for lanes in (16, 8, 4)]  # fmt: skip
    assert_exact(cases)


@pytest.mark.parametrize("k", [2, 3, 4, 5, 8, 63, 257])
def test_remainders_of_the_reduction(k: int) -> None:
    tiles = (4, 16, 1), (8, 16, 6), (16, 32, 26)
    assert_exact(program(gemm(13, 35, k), *tiles, pack_b=1, pack_a=a) for a in (0, 1))


def test_blocks_splits_batches_and_epilogues() -> None:
    batched = operators.batched_gemm(3, 9, 20, 37, dtype="int8")
    cases = [
        program(gemm(40, 50, 200), (5, 24, 2), (10, 24, 20), (20, 48, 40), pack_b=1, thread_split=4, unroll=4),
        program(gemm(40, 50, 200).with_epilogue("bias", "relu"), (5, 24, 2), (10, 48, 20), (20, 48, 40), pack_b=1),
        program(batched, (2, 3, 16, 1), (2, 6, 32, 8), (4, 6, 32, 16), pack_b=1, prefetch=4),
        program(batched, (1, 4, 8, 1), (3, 4, 8, 37), (3, 12, 24, 37), pack_b=1, pack_a=1, loop_order=1),
    ]
    assert_exact(cases)


@pytest.mark.thorough
@pytest.mark.parametrize("m, shared", [(40, True), (12, False)])
@pytest.mark.parametrize("k", [4, 20, 43])
def test_copies_of_all_tasks_and_narrow_tiles(m: int, shared: bool, k: int) -> None:
    """A shared panel's start is taken once over blocks, L1 tiles and chunks; the last columns go to a narrower tile."""
    tiles = (3, 48, 2), (6, 48, 6), (12, 96, 12)
    cases = [program(gemm(m, 112, k), *tiles, pack_b=1, pack_a=a, thread_split=s) for a, s in ((0, 1), (1, 1), (1, 2))]
    kernels = [generate_c(case) for case in cases]
    for case, kernel in zip(cases, kernels, strict=True):
        packing = make_plan(case).reads[1].packing
        assert packing is not None and packing.shared == shared
        assert "register_tile_edge_16" in kernel.source and "dot_16(" in kernel.source
    assert_exact(kernels)


@pytest.mark.thorough
def test_sanitizers_find_nothing_in_groups(tmp_path: Path) -> None:
    tiles = (3, 48, 2), (6, 48, 6), (12, 96, 12)
    cases = [program(gemm(m, 112, 43), *tiles, pack_b=1, pack_a=a) for m, a in ((40, 1), (12, 0), (12, 1))]
    cases += [program(gemm(64, 33, 63), (4, 21, 1), (8, 21, 63), (64, 21, 63), hw=machine(4), pack_b=1, pack_a=1)]
    assert sanitized_apart(tmp_path, [generate_c(case) for case in cases]) == ""


@pytest.mark.parametrize("pack_b", thorough_but([0, 1], 1))
def test_int8_between_guard_pages(pack_b: int) -> None:
    in_a_process_of_its_own(__name__, f"run_between_guard_pages({pack_b})")


def run_between_guard_pages(pack_b: int) -> None:
    """Carried sums at the end of the output, which gcc once loaded whole vectors of."""
    arches = ["native", *(["haswell"] if "avx2" in cpu_info().flags else [])]
    for arch in arches:
        knobs = {"unroll": 8, "prefetch": 8, "pack_b": pack_b}
        four, eight = machine(4, arch), machine(8, arch)
        cases = [
            program(gemm(5, 31, 17), (8, 16, 1), (8, 64, 3), (8, 64, 3), hw=four, loop_order=1, **knobs),
            program(gemm(97, 3, 5), (1, 48, 1), (4, 96, 2), (16, 96, 2), hw=eight, **knobs),
            program(gemm(40, 112, 43), (3, 48, 2), (6, 48, 6), (12, 96, 12), pack_a=1, **knobs),
        ]
        for case in cases:
            run_kernel_between_guard_pages(generate_c(case))


def test_which_kernels_are_grouped() -> None:
    tiles = (4, 16, 1), (4, 16, 8), (8, 16, 8)
    grouped = program(gemm(16, 16, 16), *tiles, pack_b=1)
    assert make_plan(grouped).group == 2
    others = [
        program(gemm(16, 16, 16), *tiles),  # not packed
        program(gemm(16, 16, 1), *tiles, pack_b=1),  # nothing to group
        program(operators.gemm(16, 16, 16), *tiles, pack_b=1),
    ]
    assert [make_plan(other).group for other in others] == [-1] * len(others)
