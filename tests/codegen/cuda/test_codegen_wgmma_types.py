"""wgmma kernels of tf32 and int8, whose B is transposed beforehand: right at awkward extents, and what they compile to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.cuda import nvrtc, sass
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.measure.answers.expectation import make_draws
from gensor_gym.measure.emulator.emulator import EmulatedKernels
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import (
    TINY,
    assert_compiles_well,
    check_caught,
    compile_well,
    faults,
    faults_of,
    gemm,
    legal_kernels,
    needs_nvrtc,
    right,
    wgmma_kernel,
)

CASES = {
    "tf32": [
        wgmma_kernel(gemm(70, 72, 200, "tf32"), [64, 64], [64, 64], stages=1),
        wgmma_kernel(gemm(64, 40, 32, "tf32"), [64, 8], [64, 8], stages=2),
        wgmma_kernel(gemm(150, 201, 68, "tf32", "bias", "relu"), [64, 128], [64, 128], stages=3, raster=2),
        wgmma_kernel(gemm(100, 136, 36, "tf32", "scale"), [128, 136], [128, 136], stages=4),
        wgmma_kernel(gemm(150, 200, 100, "tf32", "bias", "gelu", "residual"), [64, 256], [128, 256], stages=3),
        wgmma_kernel(gemm(130, 150, 132, "tf32", "residual"), [64, 72], [64, 144], stages=2),
    ],
    "int8": [
        wgmma_kernel(gemm(70, 72, 208, "int8"), [64, 64], [64, 64], stages=1),
        wgmma_kernel(gemm(64, 40, 128, "int8"), [64, 16], [64, 16], stages=2),
        wgmma_kernel(gemm(150, 201, 272, "int8", "bias", "relu"), [64, 128], [64, 128], stages=3, raster=2),
        wgmma_kernel(gemm(100, 136, 144, "int8", "residual"), [128, 144], [128, 144], stages=4),
        wgmma_kernel(gemm(150, 198, 400, "int8", "bias", "relu", "residual"), [64, 256], [128, 256], stages=3),
        wgmma_kernel(gemm(130, 150, 528, "int8"), [64, 80], [64, 160], stages=2),
    ],
    "persistent and split": [
        wgmma_kernel(gemm(150, 200, 136, "tf32"), [64, 64], [64, 64], TINY, stages=3, persistent=1, raster=2),
        wgmma_kernel(gemm(70, 72, 328, "tf32", "bias", "relu"), [64, 64], [64, 64], stages=2, split_k=4),
        wgmma_kernel(gemm(260, 133, 272, "int8", "bias"), [64, 64], [128, 64], TINY, stages=2, persistent=1),
        wgmma_kernel(gemm(70, 135, 656, "int8", "relu"), [64, 64], [64, 64], TINY, stages=3, split_k=2, persistent=1),
    ],
    "batched": [
        wgmma_kernel(operators.batched_gemm(3, 70, 135, 88, dtype="tf32"), [64, 64], [64, 64], stages=2),
        wgmma_kernel(operators.batched_gemm(2, 64, 72, 200, dtype="tf32").with_epilogue("bias"), [64, 72], [128, 72], stages=4),
        wgmma_kernel(operators.batched_gemm(3, 70, 140, 176, dtype="int8"), [64, 64], [64, 64], stages=2, raster=2),
        wgmma_kernel(operators.batched_gemm(2, 70, 71, 272, dtype="int8"), [64, 64], [64, 64], TINY, stages=1, persistent=1),
    ],
    "cluster": [
        wgmma_kernel(gemm(200, 200, 100, "tf32"), [64, 128], [64, 128], stages=3, cluster=2),
        wgmma_kernel(gemm(130, 40, 68, "tf32", "relu"), [64, 8], [64, 8], stages=2, cluster=2),  # one box for two blocks
        wgmma_kernel(gemm(320, 150, 400, "int8", "bias"), [64, 80], [128, 160], TINY, stages=2, cluster=2, persistent=1),
    ],
}

test_products_are_right = right(CASES, "int8")


def test_b_is_transposed_before_and_parts_are_added_up_after() -> None:
    """Three launches, the main one known by its name; the workspace holds parts, then B, whose map begins there."""
    kernel = CASES["persistent and split"][1]
    assert [launch.entry for launch in kernel.launches] == ["gg_gemm_layout", "gg_gemm", "gg_gemm_finish"]
    assert kernel.main == kernel.launches[1]
    parts = 4 * 70 * 72 * 4
    assert kernel.maps[1].offset == -(-parts // 1024) * 1024
    assert kernel.workspace_bytes == kernel.maps[1].offset + 72 * 328 * 4
    assert [m.dtype for m in kernel.maps] == ["tf32", "tf32"] and kernel.maps[1].shape == (72, 328)


@pytest.mark.parametrize(("dtype", "columns"), [("int8", 40), ("int8", 264), ("tf32", 12)])
def test_columns_that_no_instruction_has_are_refused(dtype: str, columns: int) -> None:
    step = {"int8": 16, "tf32": 8}[dtype]
    with pytest.raises(ValueError, match=f"{columns} columns of a consumer: multiples of {step} up to 256"):
        wgmma_kernel(gemm(256, 512, 256, dtype), [64, columns], [64, columns])


@pytest.mark.thorough
def test_legal_schedules_are_right() -> None:
    """What the rules let pass can be generated, takes what they count, and is right."""
    rng = np.random.default_rng(5)
    for op in (gemm(150, 130, 164, "tf32", "bias"), operators.batched_gemm(2, 192, 133, 272, dtype="int8")):
        assert faults([*legal_kernels(op, 3, rng), *legal_kernels(op, 2, rng, cluster=2)]) == []


DAMAGED = {
    "tf32": wgmma_kernel(gemm(130, 136, 200, "tf32"), [64, 64], [128, 64], stages=2),
    "int8": wgmma_kernel(gemm(130, 134, 656, "int8"), [64, 64], [128, 64], stages=2),
}
FAULTS = {
    ("tf32", "no pass"): ("turned[", "if (first_column > 0) turned[", "wrong|NaN"),
    ("tf32", "a pitch"): ("at * 65 + word] = k", "at * 64 + word] = k", "wrong"),
    ("tf32", "points"): ("b_tile + point * 32", "b_tile + point * 1024", "wrong|outside|do not begin"),
    ("tf32", "leading offset"): ("| 1ull << 16", "| 2ull << 16", "leading offset is none of its layout"),
    ("int8", "bytes in another order"): ("0x7362", "0x6372", "wrong"),
    ("int8", "words in another order"): ("__byte_perm(low_0, low_2, 0x5410)", "__byte_perm(low_2, low_0, 0x5410)", "wrong"),
    ("int8", "a row too far"): ("first + i < 656", "first + i < 672", "wrong|heap-buffer-overflow"),
    ("int8", "no barrier in the pass"): ("__syncthreads();\n  #pragma", "#pragma", "wrong"),
    ("int8", "given back too early"): ("wgmma_wait<1>();", "", "wrong|overflow"),
    ("int8", "no wait before the store"): ("wgmma_wait<0>();", "", "wrong"),
}

QUICK = (
    ("tf32", "no pass"), ("tf32", "leading offset"), ("int8", "no barrier in the pass"),
)  # fmt: skip
"""Faults that are planted by default; kernels of others are compiled where they are asked for."""


@pytest.fixture(scope="module")
def damaged(planted: list[tuple[str, str]]) -> Iterator[EmulatedKernels]:
    """The two sound kernels, then one with each fault that is asked for."""
    kernels = list(DAMAGED.values())
    for name, (old, new, _) in FAULTS.items():
        sound = DAMAGED[name[0]]
        assert old in sound.source, old
        kernels += [replace(sound, source=sound.source.replace(old, new))] if name in planted else []
    with EmulatedKernels(kernels) as program:
        assert faults_of(program, 0, seeds=3) == [] == faults_of(program, 1, seeds=3)
        yield program


@pytest.mark.parametrize(("dtype", "fault"), thorough_but(FAULTS, *QUICK))
def test_planted_faults_are_caught(damaged: EmulatedKernels, planted: list[tuple[str, str]], dtype: str, fault: str) -> None:
    """For every order of events: a wrong answer, or the emulator's words."""
    check_caught(damaged, len(DAMAGED) + planted.index((dtype, fault)), FAULTS[dtype, fault][2])


def test_both_operands_of_tf32_are_rounded_and_not_cut_off() -> None:
    """Sums of 32 products of numbers just below the next of tf32: a map of float32 would lose 2^-10 of each."""
    op = gemm(64, 8, 32, "tf32")
    kernel = wgmma_kernel(op, [64, 8], [64, 8])
    below = np.float32(2.0 - 2.0**-12)
    inputs = tuple(np.full(t.shape, below) for t in op.inputs)
    plain = [replace(m, dtype="float32") for m in kernel.maps]
    kernels = [kernel, replace(kernel, maps=(plain[0], kernel.maps[1])), replace(kernel, maps=(kernel.maps[0], plain[1]))]
    cut = 2.0 * (2.0 - 2.0**-10) * 32
    with EmulatedKernels(kernels) as program:
        outputs = [program.run(number, inputs) for number in range(3)]
    assert [float(out.min()) for out in outputs] == [float(out.max()) for out in outputs] == [128.0, cut, cut]


def test_truncated_inputs_are_out_of_bounds_where_they_are_biased() -> None:
    """Why rounding matters: of inputs of one sign the bound holds with rounding and not without."""
    op = gemm(64, 64, 512, "tf32")
    kernel = wgmma_kernel(op, [64, 64], [64, 64], stages=2)
    draw = make_draws(op, 3)[0]
    inputs = tuple(np.abs(a) for a in draw.inputs)
    exact = inputs[0].astype(np.float64) @ inputs[1].astype(np.float64)
    plain = replace(kernel, maps=tuple(replace(m, dtype="float32") for m in kernel.maps))
    with EmulatedKernels([kernel, plain]) as program:
        errors = [np.abs(program.run(number, inputs) - exact).max() / exact.max() for number in range(2)]
    assert errors[0] < 2.0**-13 < 2.0**-11 < errors[1]


def large(dtype: str, *stages: str) -> operators.Operator:
    """A product of 4096 cubed."""
    return gemm(4096, 4096, 4096, dtype, *stages)


MENU: dict[str, Kernel] = {
    f"{dtype} {name}": wgmma_kernel(large(dtype, *stages), tile, block, **knobs)
    for dtype in ("tf32", "int8")
    for name, stages, tile, block, knobs in (
        ("128x256", (), [64, 256], [128, 256], {"stages": 4, "persistent": 1, "raster": 8}),
        ("128x128", (), [64, 128], [128, 128], {"stages": 4}),
        ("64x128", ("bias", "relu"), [64, 128], [64, 128], {"stages": 5}),
        ("pair", ("bias", "residual"), [128, 128], [256, 128], {"stages": 4, "persistent": 1, "raster": 8, "cluster": 2}),
    )
}

test_nvrtc_neither_spills_nor_serialises = compile_well(MENU)


@pytest.mark.thorough
@needs_nvrtc
def test_nvrtc_takes_legal_schedules() -> None:
    """Of either type: the registers that the rules count are enough."""
    rng = np.random.default_rng(6)
    for kernel in (*legal_kernels(large("tf32"), 4, rng), *legal_kernels(large("int8"), 4, rng)):
        assert_compiles_well(kernel)


@pytest.mark.thorough
@needs_nvrtc
@pytest.mark.skipif(not sass.is_available(), reason=f"no disassembler: pip install {sass.PACKAGE}")
@pytest.mark.parametrize(
    ("name", "operation"),
    thorough_but(
        [("tf32 128x256", "HGMMA"), ("int8 128x256", "IGMMA"), ("int8 128x128", "IGMMA")],
        ("int8 128x128", "IGMMA"),
    ),
)  # fmt: skip
def test_the_main_loop_multiplies(name: str, operation: str) -> None:
    """Four wgmma a step and a few instructions around them; the pass before has none."""
    cubin = nvrtc.compile_cubin(MENU[name]).cubin
    loop = sass.main_loop(cubin)
    assert loop.entry == "gg_gemm" and loop.counts[operation] % 4 == 0 and loop.counts[operation] >= 4
    kernels = sass.instructions(sass.disassemble(cubin))
    before = Counter(line.partition(" ")[0].partition(".")[0] for line in kernels["gg_gemm_layout"])
    assert before[operation] == 0 and before["STS"] >= 16 and before["LDL"] == before["STL"] == 0
