"""C kernels of int8 products whose epilogue dequantises and quantises: any schedule and padding, no stray access."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.c.codegen import generate_c
from gensor_gym.codegen.program import Program
from gensor_gym.codegen.runtime.c import load
from gensor_gym.graph.structure import vector_axis
from tests.codegen.c.test_codegen_c_memory import run_kernel_between_guard_pages
from tests.support.apart import in_a_process_of_its_own
from tests.support.c_cases import (
    ARCHES,
    CPU_KNOBS,
    check,
    inputs_of,
    machine,
    needs,
    program,
    random_operator,
    random_tiles,
    worst_error,
)  # fmt: skip
from tests.support.gir_cases import sanitized_apart
from tests.support.thorough import thorough_but

STAGES = (
    "dequantize", "bias+dequantize+bias+quantize", "bias+dequantize+bias+relu+quantize", "dequantize+bias+relu6",
    "dequantize+bias+residual_int8+relu+scale+quantize", "bias+dequantize+bias+gelu+scale+quantize",
    "dequantize+bias+residual+quantize",
)  # fmt: skip
BATCHES, PER_BATCH = 16, 12


def random_quantised(seed: int, arch: str = "native") -> Program:
    """A random program of an int8 product with one of the epilogues, padded with any number."""
    rng = random.Random(seed)
    op = next(made for made in iter(lambda: random_operator(rng, ["int8"]), None) if made.body == "multiply_add")
    if any(read.is_padded(op.extents) for read in op.reads):
        arguments = (*op.arguments, ("pad_value", rng.choice((-128, -15, 7, 127))))
        op = operators.parse(str(op.renamed(arguments=arguments, epilogue=())))
    op = op.renamed(epilogue=(), write=operators.parse(str(op.renamed(epilogue=()))).write)
    op = op.with_epilogue(*STAGES[seed % len(STAGES)].split("+"))
    knobs = {name: rng.choice(values) for name, values in CPU_KNOBS.items() if name != "convolution"}
    knobs["thread_split"] = rng.choice((1, 1, 1, 2, 4, 8))
    knobs["convolution"] = rng.choice((0, 1, 2)) if op.name == "conv2d" else 0
    hw = machine(rng.choice((16, 16, 8, 4)), arch)
    return program(op, *random_tiles(rng, op, vector_axis(op, knobs["convolution"]), hw.lanes), hw=hw, **knobs)


@pytest.mark.parametrize("batch", thorough_but(range(BATCHES), 0))
def test_random_programs(batch: int) -> None:
    made = [random_quantised(PER_BATCH * batch + seed) for seed in range(PER_BATCH)]
    check(made[::2], 1)
    check(made[1::2], 2)


def pixels(width: int, q: int, lanes: int, arch: str = "native", window: int = 1) -> Program:
    """A convolution with channels as lanes and a residual, in register tiles of `q` of the output's `width` pixels of a row."""
    shape = f"n=2, c=5, h=3, w={width}, k={2 * lanes}, r={window}, s={window}, padding={window // 2}"
    op = operators.parse(f'conv2d({shape}, dtype="int8")+bias+dequantize+bias+residual_int8+relu+scale+quantize')
    task = (2, 2 * lanes, 3, width, 8, window, window)
    tiles = (1, lanes, 1, q, 4, 1, 1), (1, lanes, 1, q, *task[4:]), task
    return program(op, *tiles, hw=machine(lanes, arch), convolution=1, pack_a=1, pack_b=1)


@pytest.mark.parametrize("lanes", (4, 8, 16))
def test_pixels_in_words(lanes: int) -> None:
    """Rows of pixels that words divide or not, tiles that stick out of the row, and windows with padding."""
    sizes = (8, 4), (7, 7), (14, 7), (6, 3), (9, 4), (10, 2), (28, 14), (16, 16), (12, 12), (5, 1)
    made = [pixels(width, q, lanes) for width, q in sizes]
    texts = [generate_c(one).source for one in made]
    assert [f"words_{lanes}(y_2" in text and f"words_{lanes}(residual_int8" in text for text in texts] == [True] * 9 + [False]
    assert f"scatter_four_words_{lanes}(y_2" in texts[6] and f"scatter_two_words_{lanes}(y_2" in texts[1]
    check([*made, pixels(7, 7, lanes, window=3)], 2)


@pytest.mark.parametrize("arch", thorough_but(ARCHES, "x86-64"))
def test_every_instruction_set(arch: str) -> None:
    needs(arch)
    check([*(random_quantised(500 + seed, arch) for seed in range(7)), pixels(14, 7, 8, arch)], 1)


@pytest.mark.parametrize("right, wrong", [
    ("x = real_min_16(real_max_16(x, -128.0f - zero), 127.0f - zero);", ""),  # not clipped
    (" + __builtin_convertvector(zero, vec16)", ""),  # no zero point
    ("real_max_16(x, ", "real_max_16(x + 0.5f, "),  # not to the nearest
])  # fmt: skip
def test_planted_faults_show(right: str, wrong: str) -> None:
    op = operators.parse('gemm(m=12, n=48, k=20, dtype="int8")+bias+dequantize+bias+quantize')
    kernel = generate_c(program(op, (3, 32, 1), (6, 32, 20), (12, 48, 20), pack_b=1))
    inputs = inputs_of(op)
    assert worst_error(op, inputs, load(kernel, 1)(*inputs)) <= 1.0 and right in kernel.source
    faulty = dataclasses.replace(kernel, source=kernel.source.replace(right, wrong))
    assert worst_error(op, inputs, load(faulty, 1)(*inputs)) > 1.0


@pytest.mark.parametrize("right, wrong", [
    ("<< (24 - 8 * i)) >> 24", ">> 8 * i)"),  # without the sign
    ("words_of_16(sum_0_0, sum_1_0, ", "words_of_16(sum_1_0, sum_0_0, "),
    ("byte_of_16(residual_int8_0_0[0], 2)", "byte_of_16(residual_int8_0_0[0], 1)"),
    ("memcpy(p + 1 * stride, &c1", "memcpy(p + 1 * stride, &c0"),  # another channel
    # without the zero point
    ("_mm512_adds_epi16(_mm512_packs_epi32((__m512i)c, (__m512i)d), add)", "_mm512_packs_epi32((__m512i)c, (__m512i)d)"),
    ("_mm512_packs_epi16(ab, cd)", "_mm512_packs_epi16((__m512i)(((vec16)ab << 24) >> 24), cd)"),  # not clipped
])  # fmt: skip
def test_planted_faults_of_words_show(right: str, wrong: str) -> None:
    for made in (pixels(8, 4, 16), pixels(14, 7, 16), pixels(28, 14, 16)):
        kernel, inputs = generate_c(made), inputs_of(made.operator)
        assert worst_error(made.operator, inputs, load(kernel, 1)(*inputs)) <= 1.0 and right in kernel.source
        faulty = dataclasses.replace(kernel, source=kernel.source.replace(right, wrong))
        assert worst_error(made.operator, inputs, load(faulty, 1)(*inputs)) > 1.0


@pytest.mark.parametrize("lanes", (4, 8, 16))
def test_numbers_beyond_int32_are_clipped(lanes: int) -> None:
    op = operators.parse(f'conv2d(n=1, c=5, h=2, w=12, k={2 * lanes}, r=1, s=1, dtype="int8")+dequantize+quantize')
    tiles = (1, lanes, 1, 12, 4, 1, 1), (1, lanes, 1, 12, 8, 1, 1), (1, 2 * lanes, 2, 12, 8, 1, 1)
    kernel = generate_c(program(op, *tiles, hw=machine(lanes), convolution=1, pack_a=1, pack_b=1))
    assert f"= nearest_{lanes}(" in kernel.source
    x, w, factor, zero = inputs_of(op)
    sums = np.einsum("nchw,kcrs->nkhw", x.astype(np.int64), w.astype(np.int64))
    for most in (1.0, 1e7, 1e30):
        factor[:] = np.where(np.arange(len(factor)) % 3, most, -most)
        wanted = np.clip(sums * factor[:, None, None].astype(np.float64) + zero[:, None, None], -128, 127)
        assert np.array_equal(load(kernel, 1)(x, w, factor, zero), wanted)
    faulty = dataclasses.replace(kernel, source=kernel.source.replace("x = real_min_", "x = real_max_"))
    assert not np.array_equal(load(faulty, 1)(x, w, factor, zero), wanted)


@pytest.mark.thorough
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    kernels = [generate_c(random_quantised(seed)) for seed in range(600, 621)]
    kernels += [generate_c(pixels(*sizes)) for sizes in ((14, 7, 16), (28, 14, 16), (8, 4, 8), (6, 3, 4), (13, 13, 4))]
    assert sanitized_apart(tmp_path, kernels) == ""


def test_tensors_between_guard_pages() -> None:
    in_a_process_of_its_own(__name__, "run_between_guard_pages()")


def run_between_guard_pages() -> None:
    for seed in range(700, 707):
        run_kernel_between_guard_pages(generate_c(random_quantised(seed)))
    for q in (3, 4, 7, 13):
        run_kernel_between_guard_pages(generate_c(pixels(q, q, 8)))


@pytest.mark.parametrize("text, said", [
    ('gemm(m=4, n=4, k=4, dtype="int8")+quantize', "stage 'quantize' of int32: expected one of bias, relu, residual, dequantize"),
    ('gemm(m=4, n=4, k=4, dtype="int8")+dequantize+quantize+relu', "stage 'relu' of int8"),
    ("gemm(m=4, n=4, k=4)+dequantize", "stage 'dequantize' of float32"),
    ("conv2d(n=1, c=4, h=4, w=4, k=4, r=3, s=3, padding=1, pad_value=3)", "pad_value=3 of float32: expected 0, or of int8"),
])  # fmt: skip
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        operators.parse(text)
