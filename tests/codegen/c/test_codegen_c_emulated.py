"""Generated C is right on NEON and on AVX2 alone: random legal schedules of every operator, under qemu.

`make test-all` runs these; where qemu cannot be had they fail and say what to install.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from gensor_gym.codegen.c.codegen import generate_c
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.hardware.cpuinfo import cpu_info
from tests.codegen.c.test_codegen_c_groups import KINDS
from tests.support.c_cases import HALVES, inputs_of, legal_kernel, machine, random_operator, worst_error
from tests.support.emulation import AVX2, NEON, built, emulator, outputs

TARGETS = {"neon": NEON, "avx2": AVX2}
BATCHES, PER_BATCH = 3, 40

pytestmark = [pytest.mark.thorough, pytest.mark.fetches]


def seeds(batch: int) -> range:
    return range(8000 + PER_BATCH * batch, 8000 + PER_BATCH * (batch + 1))


def assert_right(kernels: list[Kernel], command: list[str], guards: bool) -> None:
    inputs = [inputs_of(kernel.operator) for kernel in kernels]
    for kernel, given, output in zip(kernels, inputs, outputs(command, kernels, inputs, guards), strict=True):
        error = worst_error(kernel.operator, given, output)
        assert error <= 1.0, f"{kernel.operator}: {error} times the bound\n{kernel.source}"


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("name", TARGETS)
def test_random_legal_schedules_are_right(name: str, batch: int, tmp_path: Path) -> None:
    target = TARGETS[name]
    kernels = [legal_kernel(seed, target.hardware) for seed in seeds(batch)]
    program = str(built(kernels, target, tmp_path))
    assert_right(kernels, [*target.qemu, program], target.guards)
    if target is AVX2 and {"avx2", "fma"} <= cpu_info().flags:
        assert_right(kernels, [program], guards=True)


@pytest.mark.parametrize("name", TARGETS)
def test_int8_in_groups_of_four_is_right(name: str, tmp_path: Path) -> None:
    """Products with a vector and convolutions, whose groups no random schedule above is likely to have."""
    target = TARGETS[name]
    kernels = [generate_c(kind(seed, hw=target.hardware)) for kind in KINDS.values() for seed in range(700, 712)]
    assert sum("dot_" in kernel.source for kernel in kernels) >= 18
    assert_right(kernels, [*target.qemu, str(built(kernels, target, tmp_path))], target.guards)


@pytest.mark.parametrize("name", TARGETS)
def test_floats_of_16_bits_are_right(name: str, tmp_path: Path) -> None:
    """Random schedules, and products of bfloat16 in pairs."""
    target = TARGETS[name]
    kernels = [legal_kernel(seed, target.hardware, HALVES) for seed in range(9500, 9530)]
    pairs = [kind(seed, hw=target.hardware, dtype="bfloat16") for kind in KINDS.values() for seed in range(700, 708)]
    kernels += map(generate_c, pairs)
    assert sum("dot_bfloat_" in kernel.source for kernel in kernels) >= 10
    assert_right(kernels, [*target.qemu, str(built(kernels, target, tmp_path))], target.guards)


def test_the_seeds_cover_every_operator_and_int8() -> None:
    found = [random_operator(random.Random(seed)) for batch in range(BATCHES) for seed in seeds(batch)]
    assert len({op.name for op in found}) == 9
    assert {"gemm", "batched_gemm", "gemv", "conv2d", "depthwise_conv2d"} <= {op.name for op in found if op.dtype == "int8"}


def test_faults_are_found_under_emulation(tmp_path: Path) -> None:
    """A wrong sum, and a load from behind a tensor."""
    kernel = next(k for k in (legal_kernel(seed, NEON.hardware) for seed in seeds(0)) if "sum_0_0 += " in k.source)
    assert_right([kernel], [*NEON.qemu, str(built([kernel], NEON, tmp_path))], guards=True)
    wrong = dataclasses.replace(kernel, source=kernel.source.replace("sum_0_0 += ", "sum_0_0 -= "))
    with pytest.raises(AssertionError, match="times the bound"):
        assert_right([wrong], [*NEON.qemu, str(built([wrong], NEON, tmp_path))], guards=True)
    behind = f"((volatile char *)inputs[0])[{kernel.operator.inputs[0].nbytes}];"
    reader = dataclasses.replace(kernel, source=kernel.source.replace("struct call call =", f"{behind} struct call call ="))
    with pytest.raises(RuntimeError, match="Segmentation fault"):
        assert_right([reader], [*NEON.qemu, str(built([reader], NEON, tmp_path))], guards=True)


def test_avx_512_is_illegal_to_the_emulated_processor(tmp_path: Path) -> None:
    """So the kernels for AVX2 above hold none of it."""
    wide = dataclasses.replace(AVX2, hardware=machine(16, "skylake-avx512"))
    kernel = next(k for k in (legal_kernel(seed, wide.hardware) for seed in seeds(0)) if "vec16" in k.source)
    with pytest.raises(RuntimeError, match="Illegal instruction"):
        assert_right([kernel], [*wide.qemu, str(built([kernel], wide, tmp_path))], guards=False)


def test_what_is_missing_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path))
    with pytest.raises(RuntimeError, match="no qemu-riscv64: `apt-get install qemu-user-static`"):
        emulator("riscv64")
