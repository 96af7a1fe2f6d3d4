"""bfloat16 products in pairs: right on every instruction set, with odd remainders, by `vdpbf16ps` where the processor has it."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.c.codegen import generate_c
from gensor_gym.codegen.c.plan import make_plan
from gensor_gym.codegen.program import Program
from gensor_gym.codegen.runtime.c import load
from gensor_gym.codegen.runtime.compile import compile_c
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.hardware.cpuinfo import cpu_info
from tests.codegen.c.test_codegen_c_groups import KINDS, ROW
from tests.codegen.c.test_codegen_c_memory import run_kernel_between_guard_pages
from tests.support.apart import in_a_process_of_its_own
from tests.support.c_cases import ARCHES, check, inputs_of, machine, needs, program, worst_error
from tests.support.gir_cases import sanitized_apart
from tests.support.thorough import thorough_but

HAS_PAIRS = find_compiler().name == "gcc" and "avx512_bf16" in cpu_info().flags


def products(arch: str = "native") -> list[Program]:
    """Products whose scalar operand is packed or not: odd reductions, blocks, chunks of the reduction, narrow tiles."""
    gemm, four = operators.gemm(13, 35, 37, dtype="bfloat16"), machine(4, arch)
    batched, sixteen = operators.batched_gemm(3, 9, 20, 31, dtype="bfloat16"), machine(16, arch)
    long = operators.gemm(40, 112, 203, dtype="bfloat16").with_epilogue("bias", "gelu")
    return [
        program(gemm, (4, 16, 1), (8, 16, 6), (16, 32, 12), hw=sixteen, pack_b=1),
        program(gemm, (6, 21, 3), (12, 42, 9), (24, 84, 18), hw=sixteen, pack_b=1, pack_a=1),
        program(gemm, (3, 8, 1), (3, 8, 5), (6, 16, 15), hw=four, pack_b=1, unroll=4),
        program(batched, (2, 3, 16, 1), (2, 6, 32, 7), (4, 6, 32, 14), hw=sixteen, pack_b=1, prefetch=4),
        program(long, (3, 48, 2), (6, 48, 20), (12, 96, 40), hw=sixteen, pack_b=1, thread_split=3),
        program(long.freeze(), (5, 32, 2), (10, 32, 20), (40, 32, 40), hw=sixteen, pack_b=1, pack_a=1, loop_order=1),
    ]


@pytest.mark.parametrize("arch", thorough_but(ARCHES, "x86-64", "native"))
def test_products_on_every_instruction_set(arch: str) -> None:
    needs(arch)
    kernels = [generate_c(each) for each in products(arch)]
    assert all("dot_bfloat_" in kernel.source and "_dpbf16_ps(" in kernel.source for kernel in kernels)
    check(kernels, 2)


@pytest.mark.parametrize("arch", thorough_but(ARCHES, "native"))
@pytest.mark.parametrize("name", KINDS)
def test_vectors_and_convolutions(name: str, arch: str) -> None:
    needs(arch)
    kernels = [generate_c(KINDS[name](seed, arch, dtype="bfloat16")) for seed in range(600, 608)]
    assert sum("dot_bfloat_" in kernel.source for kernel in kernels) >= 6
    check(kernels, 2)


@pytest.mark.skipif(not HAS_PAIRS, reason="this machine has no products of pairs")
def test_the_processor_multiplies_pairs() -> None:
    """The library contains the instruction; compiled without AVX-512 BF16, it does not."""
    for arch, wanted in (("native", True), ("skylake-avx512", False)):
        library = compile_c(generate_c(products(arch)[0]))
        text = subprocess.run(["objdump", "-d", library], capture_output=True, text=True, check=True).stdout
        assert ("vdpbf16ps" in text) == wanted


@pytest.mark.skipif(not HAS_PAIRS, reason="this machine has no products of pairs")
def test_the_compilers_header_gives_the_same() -> None:
    kernel = generate_c(products()[1])
    assert "#define GG_BUILTINS" in kernel.source
    with_header = dataclasses.replace(kernel, source=kernel.source.replace("#define GG_BUILTINS", ""))
    inputs = inputs_of(kernel.operator)
    np.testing.assert_array_equal(load(kernel, 1)(*inputs), load(with_header, 1)(*inputs))


def test_a_lost_element_of_a_pair_is_seen() -> None:
    kernel = generate_c(products("x86-64")[0])
    fault = dataclasses.replace(kernel, source=kernel.source.replace("row + 2 <= rows", "0").replace("row + 1 < rows", "0"))
    assert fault.source != kernel.source
    inputs = inputs_of(kernel.operator)
    assert worst_error(kernel.operator, inputs, load(fault, 1)(*inputs)) > 1.0


def test_which_kernels_multiply_in_pairs() -> None:
    tiles = (4, 16, 1), (4, 16, 8), (8, 16, 8)
    direct = {"convolution": 1, "pack_a": 1, "pack_b": 1}
    conv = operators.conv2d(n=1, c=8, h=8, w=9, k=16, r=3, s=3, padding=1, dtype="bfloat16")
    grouped = [
        program(operators.gemm(16, 16, 16, dtype="bfloat16"), *tiles, pack_b=1),
        program(operators.gemv(16, 64, dtype="bfloat16"), (4, 64), (4, 64), (8, 64)),
        program(conv, ROW, ROW, ROW, **direct),
    ]
    assert [make_plan(each).group_size for each in grouped] == [2, 2, 2]
    others = [
        program(operators.gemm(16, 16, 16, dtype="bfloat16"), *tiles),  # not packed
        program(operators.gemm(16, 16, 1, dtype="bfloat16"), *tiles, pack_b=1),  # nothing to pair
        program(operators.gemm(16, 16, 16, dtype="float16"), *tiles, pack_b=1),
    ]
    assert [make_plan(each).group_size for each in others] == [1, 1, 1]


@pytest.mark.parametrize("arch", thorough_but(ARCHES, "native"))
def test_tensors_between_guard_pages(arch: str) -> None:
    """The workspace is filled with what is not a number, so that a pair whose end nobody wrote shows."""
    needs(arch)
    in_a_process_of_its_own(__name__, f"run_between_guard_pages({arch!r})")


def run_between_guard_pages(arch: str) -> None:
    kinds = [KINDS[name](seed, arch, dtype="bfloat16") for name in KINDS for seed in range(640, 643)]
    for each in (*products(arch), *kinds):
        run_kernel_between_guard_pages(generate_c(each))


@pytest.mark.thorough
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    kinds = [KINDS[name](seed, "haswell", dtype="bfloat16") for name in KINDS for seed in (640, 641, 642)]
    assert sanitized_apart(tmp_path, [generate_c(each) for each in (*products("haswell"), *kinds)]) == ""
