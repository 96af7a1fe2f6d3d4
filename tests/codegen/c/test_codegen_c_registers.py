"""Convolutions in C whose taps share elements: where registers are few, elements are read again and sums stay in registers."""

from __future__ import annotations

import dataclasses
import platform
import random
import re
import subprocess
from pathlib import Path

import pytest

from gensor_gym import operators
from gensor_gym.codegen.c.codegen import generate_c
from gensor_gym.codegen.c.micro.kernel import AGAIN
from gensor_gym.codegen.program import Program
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.hardware.cpuinfo import cpu_info
from gensor_gym.hardware.types import Hardware
from tests.codegen.c.test_codegen_c_memory import run_kernel_between_guard_pages
from tests.support.apart import in_a_process_of_its_own
from tests.support.c_cases import check, compiled, machine, program
from tests.support.thorough import thorough_but

ON_STACK = re.compile(r"%[xyz]mm.*\(%rsp\)|\(%rsp\).*%[xyz]mm")


def over_channels(tile: tuple[int, ...], taps: tuple[int, int], k: int = 35, **knobs: int) -> Program:
    """A convolution of 3x3 taps whose lanes are channels; `tile` are the register tile's channels, rows and columns."""
    op = operators.conv2d(n=1, c=5, h=7, w=13, k=k, r=3, s=3, padding=1).with_epilogue("bias", "relu")
    levels = (1, *tile, 1, *taps), (1, *tile, 5, 3, 3), (1, *tile, 5, 3, 3)
    return program(op, *levels, **{"convolution": 1, "pack_a": 1, "pack_b": 1, "unroll": 1, **knobs})


@pytest.mark.parametrize("tile, taps, again", [
    ((16, 1, 13), (1, 3), False), ((32, 1, 13), (1, 3), True), ((16, 1, 13), (1, 1), True), ((16, 1, 1), (1, 3), False),
    ((16, 2, 6), (1, 3), True), ((16, 2, 6), (3, 3), True), ((16, 1, 13), (3, 3), False), ((16, 2, 2), (3, 3), False),
])  # fmt: skip
def test_taps_read_elements_again_where_registers_are_few(tile: tuple[int, ...], taps: tuple[int, int], again: bool) -> None:
    """Registers hold the elements of 15 columns with 13 accumulators, but not with 26. Loops that are not unrolled share none."""
    kernel = generate_c(over_channels(tile, taps))
    assert (AGAIN in kernel.source) == again
    check([kernel], 2)
    guarded = generate_c(over_channels(tile, taps, pack_a=0)).source.split("reads padding. */")[1].split("Task tile")[0]
    assert AGAIN not in guarded


def narrow(arch: str = "x86-64-v3") -> Hardware:
    """A machine with AVX2: vectors of 8 float32, 16 registers."""
    return dataclasses.replace(machine(8, arch), vector_registers=16)


def crowded(register: tuple[int, int, int], r: int = 3, hw: Hardware | None = None, **sizes: int) -> Program:
    """Return a convolution whose lanes are channels; `register` has the channels, rows and columns of its register tile."""
    size = dict(n=1, c=6, h=10, w=11, k=40, padding=r // 2) | sizes
    tile = (1, *register)
    op = operators.conv2d(r=r, s=r, **size).with_epilogue("bias", "relu")
    levels = (*tile, 1, r, 1), (*tile, size["c"], r, r), (*tile, size["c"], r, r)
    return program(op, *levels, hw=hw or narrow(), convolution=1, pack_a=1, pack_b=1, unroll=4)


@pytest.mark.parametrize(
    ("made", "expected"),
    [(crowded((24, 2, 2)), True), (crowded((24, 1, 3)), True), (crowded((24, 2, 2), r=1), False),
     (crowded((24, 2, 2), hw=machine(8)), False), (crowded((96, 1, 1)), False)],
    ids=["12 sums", "9 sums", "no window", "32 registers", "one pixel"],
)  # fmt: skip
def test_elements_of_windows_are_loaded_again_where_registers_are_few(made: Program, expected: bool) -> None:
    assert (AGAIN in generate_c(made).source) == expected


@pytest.mark.as_shipped
@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads assembly of x86-64")
@pytest.mark.parametrize(
    "made, arch, lanes",
    [(over_channels((32, 1, 13), (1, 3), k=64), "skylake-avx512", 16),
     (crowded((24, 2, 2), c=64, k=48, h=14, w=14), "x86-64-v3", 8)],
    ids=["26 sums, 32 registers", "12 sums, 16 registers"],
)  # fmt: skip
def test_reading_again_keeps_sums_in_registers(made: Program, arch: str, lanes: int, tmp_path: Path) -> None:
    """gcc 12 kept elements of other taps there, and sums on the stack: 1.5 times the time (Xeon with AVX-512)."""
    found, source, compiler = [], tmp_path / "kernel.c", find_compiler()
    text = generate_c(made).source
    for each in (text, text.replace(AGAIN, "")):
        source.write_text(each)
        line = [*compiler.command, *compiler.flags(arch, lanes, shared=False), "-fPIC", "-S", str(source), "-o", "-"]
        assembly = subprocess.run(line, check=True, timeout=60, capture_output=True, text=True).stdout
        found.append(len(ON_STACK.findall(assembly)))
    assert 2 * found[0] <= found[1] or found[1] <= 8, found  # turning the results at the end takes some room


def crowded_program(seed: int) -> Program | None:
    """A random convolution on a machine with AVX2, with 9 to 14 sums; None for a window larger than its image."""
    rng = random.Random(seed)
    register = rng.choice([(24, 2, 2), (24, 1, 4), (16, 2, 3), (16, 1, 6), (40, 1, 2), (16, 7, 1), (20, 2, 2)])
    sizes = dict(n=rng.choice((1, 2)), c=rng.choice((1, 3, 8)), h=rng.randint(3, 15), w=rng.randint(3, 15), k=rng.randint(1, 60))
    more = dict(stride=rng.choice((1, 1, 2)), dilation=rng.choice((1, 1, 2)), padding=rng.randint(0, 2))
    arch = "x86-64-v3" if platform.machine() == "x86_64" else "native"
    try:
        return crowded(register, rng.choice((2, 3, 3, 5)), narrow(arch), **sizes, **more)
    except ValueError:
        return None


@pytest.mark.skipif(cpu_info().lanes < 8, reason="kernels are compiled for AVX2")
@pytest.mark.parametrize("seeds", thorough_but([range(7500, 7512), range(7512, 7560)], range(7500, 7512)))
def test_windows_with_few_registers(seeds: range) -> None:
    made = [p for p in map(crowded_program, seeds) if p is not None]
    assert len(made) > len(seeds) // 2
    check(made, 1, 2)


@pytest.mark.thorough
@pytest.mark.skipif(cpu_info().lanes < 8, reason="kernels are compiled for AVX2")
def test_windows_with_few_registers_between_guard_pages() -> None:
    in_a_process_of_its_own(__name__, "run_crowded_between_guard_pages(range(7500, 7520))")


def run_crowded_between_guard_pages(seeds: range) -> None:
    """Run the crowded convolutions of seeds on tensors at the edge of accessible memory, and compare."""
    for kernel in compiled(p for p in map(crowded_program, seeds) if p is not None):
        run_kernel_between_guard_pages(kernel)
