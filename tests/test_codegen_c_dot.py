"""int8 products in groups of four: exact on every instruction set, at the ends of the range, whatever the remainders."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.c_codegen import generate_c
from gensor_gym.codegen.c_plan import make_plan
from gensor_gym.codegen.compile import compile_c
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.load import load
from gensor_gym.hardware.cpuinfo import cpu_info
from gensor_gym.operators.types import Operator
from tests.c_cases import inputs_of, machine, program

ARCHES = {"x86-64": "sse2", "haswell": "avx2", "skylake-avx512": "avx512bw", "native": ""}
"""What the code is compiled for -> the flag that this machine must have to run it."""


def gemm(m: int, n: int, k: int) -> Operator:
    return operators.gemm(m=m, n=n, k=k, dtype="int8")


def assert_exact(kernels: list[Kernel]) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compile_c, kernels))
    for kernel in kernels:
        op = kernel.operator
        ends = [np.full(t.shape, -128, t.dtype) for t in op.inputs[:2]]
        for inputs in (inputs_of(op), (*ends, *inputs_of(op)[2:])):
            for threads in (1, 2):
                np.testing.assert_array_equal(load(kernel, threads)(*inputs), op.reference(*inputs), str(op))


@pytest.mark.parametrize("arch", list(ARCHES))
def test_every_instruction_set_and_width(arch: str) -> None:
    if ARCHES[arch] not in cpu_info().flags | {""}:
        pytest.skip(f"this CPU does not run code for {arch}")
    tiles = (6, 21, 3), (12, 42, 9), (24, 84, 18)  # chunks of 16, 4 and 1 lanes
    cases = [program(gemm(61, 83, 71), *tiles, hw=machine(lanes, arch), pack_b=1, pack_a=lanes % 3 % 2)
             for lanes in (16, 8, 4)]  # fmt: skip
    assert_exact([generate_c(case) for case in cases])


@pytest.mark.parametrize("k", [2, 3, 4, 5, 8, 63, 257])
def test_remainders_of_the_reduction(k: int) -> None:
    tiles = (4, 16, 1), (8, 16, 6), (16, 32, 26)
    assert_exact([generate_c(program(gemm(13, 35, k), *tiles, pack_b=1, pack_a=a)) for a in (0, 1)])


def test_blocks_splits_batches_and_epilogues() -> None:
    batched = operators.batched_gemm(3, 9, 20, 37, dtype="int8")
    cases = [
        program(gemm(40, 50, 200), (5, 24, 2), (10, 24, 20), (20, 48, 40), pack_b=1, thread_split=4, unroll=4),
        program(gemm(40, 50, 200).with_epilogue("bias", "relu"), (5, 24, 2), (10, 48, 20), (20, 48, 40), pack_b=1),
        program(batched, (2, 3, 16, 1), (2, 6, 32, 8), (4, 6, 32, 16), pack_b=1, prefetch=4),
        program(batched, (1, 4, 8, 1), (3, 4, 8, 37), (3, 12, 24, 37), pack_b=1, pack_a=1, loop_order=1),
    ]
    assert_exact([generate_c(case) for case in cases])


def test_which_kernels_are_grouped() -> None:
    tiles = (4, 16, 1), (4, 16, 8), (8, 16, 8)
    grouped = program(gemm(16, 16, 16), *tiles, pack_b=1)
    assert make_plan(grouped).group == 2
    others = [
        program(gemm(16, 16, 16), *tiles),  # not packed
        program(gemm(16, 16, 1), *tiles, pack_b=1),  # nothing to group
        program(operators.gemm(16, 16, 16), *tiles, pack_b=1),
        program(operators.gemv(16, 16, dtype="int8"), (4, 16), (4, 16), (8, 16)),
        program(operators.conv2d(n=1, c=4, h=8, w=8, k=16, r=3, s=3, dtype="int8"), *([(1, 16, 1, 4, 1, 1, 1)] * 3),
                convolution=1, pack_b=1),
    ]  # fmt: skip
    assert [make_plan(other).group for other in others] == [-1] * len(others)

