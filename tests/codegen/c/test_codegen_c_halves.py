"""C kernels of 16-bit floats: every kind of operator, every way to convert, results rounded once, to nearest even."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.c.codegen import generate_c
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.c import load
from gensor_gym.operators.inputs import from_bfloat16, to_bfloat16
from tests.codegen.c.test_codegen_c_memory import run_kernel_between_guard_pages
from tests.support.apart import in_a_process_of_its_own
from tests.support.c_cases import ARCHES, HALVES, check, legal_kernel, machine, needs, program, random_operator, random_program
from tests.support.gir_cases import sanitized_apart
from tests.support.thorough import thorough_but

BATCHES, PER_BATCH = 16, 12


@pytest.mark.parametrize("batch", thorough_but(range(BATCHES), 0))
def test_random_legal_schedules(batch: int) -> None:
    kernels = [legal_kernel(9000 + PER_BATCH * batch + i, dtypes=HALVES) for i in range(PER_BATCH)]
    check(kernels[::2], 1)
    check(kernels[1::2], 2)


def test_the_batches_cover_every_operator() -> None:
    seen = {random_operator(random.Random(9000 + i), HALVES).name for i in range(BATCHES * PER_BATCH)}
    assert len(seen) == 9


@pytest.mark.parametrize("arch", thorough_but(ARCHES, "x86-64"))
def test_random_programs_on_every_instruction_set(arch: str) -> None:
    needs(arch)
    check([random_program(700 + seed, machine((16, 8, 4)[seed % 3], arch), HALVES) for seed in range(9)], 1)


@pytest.mark.parametrize("arch", thorough_but(ARCHES, "x86-64", "native"))
@pytest.mark.parametrize("dtype", HALVES)
def test_all_numbers_are_copied(dtype: str, arch: str) -> None:
    """In vectors of each width: bits stay, what is not a number stays so, and small numbers of bfloat16 may become zeros."""
    needs(arch)
    bits = np.arange(1 << 16).astype(np.uint16)
    for lanes, tile in ((16, 16), (8, 8), (4, 4), (4, 1)):
        op = operators.elementwise("copy", bits.size, dtype=dtype)
        given = bits if dtype == "bfloat16" else bits.view(np.float16)
        found = load(generate_c(program(op, (tile,), (tile,), (4096,), hw=machine(lanes, arch))), 1)(given).view(np.uint16)
        size, largest, smallest = bits & 0x7FFF, *((0x7F80, 0x80) if dtype == "bfloat16" else (0x7C00, 0))
        numbers, tiny = size <= largest, size < smallest
        assert np.array_equal(found[numbers & ~tiny], bits[numbers & ~tiny])
        assert (found[~numbers] & 0x7FFF > largest).all()
        assert ((found & 0x7FFF == 0) | (found == bits))[tiny].all()


def products(dtype: str, arch: str, lanes: int) -> tuple[Kernel, tuple[np.ndarray, ...], np.ndarray]:
    """(kernel of products a b, inputs, exact results): the reduction has one step, so that a result is rounded once."""
    rng = np.random.default_rng(0)
    a, b = (to_bfloat16(np.float32(rng.standard_normal(size) * 2.0 ** rng.integers(-6, 7, size))) for size in (128, 96))
    wide = from_bfloat16(a)[:, None] * from_bfloat16(b)[None]
    inputs, expected = (a.reshape(-1, 1), b.reshape(1, -1)), to_bfloat16(wide)
    if dtype == "float16":
        a16, b16 = (np.float16(rng.standard_normal(size) * 2.0 ** rng.integers(-10, 8, size)) for size in (128, 96))
        with np.errstate(over="ignore"):
            expected = np.float16(np.float32(a16)[:, None] * np.float32(b16)[None])
        inputs = a16.reshape(-1, 1), b16.reshape(1, -1)
    tiles = (2, lanes, 1), (4, lanes, 1), (16, 32, 1)
    return generate_c(program(operators.gemm(128, 96, 1, dtype=dtype), *tiles, hw=machine(lanes, arch))), inputs, expected


@pytest.mark.parametrize("arch", thorough_but(ARCHES, "x86-64", "native"))
@pytest.mark.parametrize("dtype", HALVES)
def test_products_are_rounded_to_nearest_even(dtype: str, arch: str) -> None:
    needs(arch)
    for lanes in (16, 4):
        kernel, inputs, expected = products(dtype, arch, lanes)
        np.testing.assert_array_equal(load(kernel, 1)(*inputs), expected)


@pytest.mark.parametrize("dtype, right, wrong", [
    ("bfloat16", "(bits + 0x7fff + (bits >> 16 & 1)) >> 16", "bits >> 16"),
    ("float16", "0xfff + (size >> 13 & 1)", "0x1000"),
])  # fmt: skip
def test_products_show_truncation_and_ties_away_from_even(dtype: str, right: str, wrong: str) -> None:
    kernel, inputs, expected = products(dtype, "x86-64", 16)
    assert right in kernel.source
    fault = dataclasses.replace(kernel, source=kernel.source.replace(right, wrong))
    assert (load(fault, 1)(*inputs) != expected).any()


def pixels(dtype: str, arch: str, lanes: int, tile: int, of: str = "+bias+residual+relu") -> Kernel:
    """A convolution whose lanes are channels, which stores lines of `tile` pixels."""
    op = operators.parse(f'conv2d(n=2, c=5, h=3, w={2 * tile}, k={2 * lanes}, r=1, s=1, dtype="{dtype}"){of}')
    tiles = (1, lanes, 1, tile, 1, 1, 1), (1, 2 * lanes, 3, 2 * tile, 5, 1, 1), (1, 2 * lanes, 3, 2 * tile, 5, 1, 1)
    return generate_c(program(op, *tiles, hw=machine(lanes, arch), convolution=1, pack_a=1, pack_b=1))


@pytest.mark.parametrize("arch", thorough_but(ARCHES, "x86-64", "native"))
def test_lines_of_pixels_are_turned_in_registers(arch: str) -> None:
    """Runs of eight and four cover a tile's pixels; the last run may overlap the one before."""
    needs(arch)
    made = [pixels(HALVES[tile % 2], arch, (16, 8)[tile // 2 % 2], tile) for tile in range(4, 18)]
    assert all("spread_" in kernel.source and "turn_" in kernel.source for kernel in made)
    check(made, 1)
    check([pixels(dtype, arch, 16, 12, of) for dtype in HALVES for of in ("", "+residual")], 2)
    for kernel in made[::3]:
        run_kernel_between_guard_pages(kernel)


@pytest.mark.parametrize("kind", ["turn", "spread"])
def test_a_line_of_pixels_out_of_order_is_found(kind: str) -> None:
    kernel = pixels("bfloat16", "x86-64", 16, 8)
    head, text = kernel.source.split(f"void {kind}_eight_bfloat_16", 1)
    swapped = text.replace("s2_0", "s2_x", 1).replace("s2_1", "s2_0", 1).replace("s2_x", "s2_1", 1)
    with pytest.raises(AssertionError):
        check([dataclasses.replace(kernel, source=f"{head}void {kind}_eight_bfloat_16{swapped}")], 1)


@pytest.mark.parametrize("knobs", [{}, {"pack_a": 1, "pack_b": 1}, {"thread_split": 4}])
@pytest.mark.parametrize("dtype", thorough_but(HALVES, "bfloat16"))
def test_sums_are_not_rounded_between_blocks(dtype: str, knobs: dict[str, int]) -> None:
    """A sum of ones in 8 bits stays at 256."""
    op = operators.gemm(5, 40, 1000, dtype=dtype)
    ones = [np.full(t.shape, 0x3F80, np.uint16) if dtype == "bfloat16" else np.ones(t.shape, np.float16) for t in op.inputs]
    found = load(generate_c(program(op, (2, 16, 1), (4, 16, 20), (8, 32, 60), **knobs)), 2)(*ones)
    assert (found == (to_bfloat16(np.float32([1000])) if dtype == "bfloat16" else 1000)).all()


@pytest.mark.thorough
@pytest.mark.parametrize("arch", ARCHES)
def test_tensors_between_guard_pages(arch: str) -> None:
    needs(arch)
    in_a_process_of_its_own(__name__, f"run_between_guard_pages({arch!r})")


def run_between_guard_pages(arch: str) -> None:
    for seed in range(800, 808):
        run_kernel_between_guard_pages(generate_c(random_program(seed, machine((16, 8, 4)[seed % 3], arch), HALVES)))


@pytest.mark.thorough
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    assert sanitized_apart(tmp_path, [generate_c(random_program(seed, dtypes=HALVES)) for seed in range(820, 840)]) == ""
