"""Types of 8 and 16 bits in CUDA."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen import generate
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.cuda.bytes import raw_words
from gensor_gym.codegen.cuda.simt import fragment as cuda_fragment
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.answers.expectation import decode, make_draws
from gensor_gym.measure.emulator.emulator import EmulatedKernels
from gensor_gym.operators.types import PRODUCT_TYPES, Operator
from tests.codegen.cuda.test_codegen_cuda import MACHINES, check
from tests.codegen.cuda.test_codegen_mma import ARCHES
from tests.codegen.cuda.test_codegen_mma import check as check_halves
from tests.support.cuda_schedules import OPERATORS, make_kernel, make_schedule, random_schedule
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import needs_nvrtc

WRONG = operators.conv2d(1, 8, 15, 16, 12, 2, 3, padding=1, dtype="int8")
SCHEDULE = "tile[" + " ".join(["1x1x1x1x2x2x1x1"] * 4) + "] vthread[1x1x1x1x1x1x1x1] level=0 "
SCHEDULE += "split_k=4 vector=4 unroll=4 stages=3 shared_layout=2 raster=2 convolution=3"
ANSWER, REFERENCE, ELEMENTS = 2046538, 38474, 1536
"""What one H100 gave for the first element of the second draw of seed 0, what is right, and how many were wrong."""

SMALL = operators.gemm(12, 8, 8, dtype="int8")
TILES = {  # of SMALL: tiles of two columns (B), of two rows (A), of both
    "columns": ([1, 2, 2], [2, 2, 8]),
    "rows": ([2, 1, 2], [2, 8, 8]),
    "both": ([2, 2, 4], [2, 2, 8]),
}
PRODUCTS = (
    WRONG, SMALL, operators.gemm(2, 64, 32, dtype="int8"), operators.batched_gemm(4, 16, 16, 16, dtype="int8"),
    operators.conv2d(2, 8, 12, 12, 8, 3, 3, dilation=2, padding=2, dtype="int8"),
    operators.depthwise_conv2d(1, 4, 12, 12, 3, 3, dtype="int8"), operators.gemv(32, 64, dtype="int8"),
)  # fmt: skip


def plain(monkeypatch: pytest.MonkeyPatch, op: Operator, schedule: Schedule) -> Kernel:
    """The kernel as it was: nothing hidden."""
    with monkeypatch.context() as patch:
        patch.setattr(cuda_fragment, "is_hidden", lambda *_: False)
        return generate(op, schedule, "h100")


def test_the_recorded_answer_is_that_of_whole_words() -> None:
    """Where a thread's first pixel stands in the lower byte of a 16-bit number, the number is taken for the pixel.

    Threads have two pixels along q, which stand side by side for each channel: the second one is the upper byte.
    """
    x, w = make_draws(WRONG, 0)[1].inputs
    padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 2), (1, 3)))[0]
    wrong, right = np.zeros((2, 12, 16, 16), np.int64)
    for r, s in itertools.product(range(2), range(3)):
        window = padded[:, r : r + 16, s : s + 16]
        words = window.copy()
        words[:, :, ::2] = (window[:, :, ::2] & 0xFF) + 256 * window[:, :, 1::2]
        wrong += np.einsum("kc,cpq->kpq", w[:, :, r, s].astype(np.int64), words)
        right += np.einsum("kc,cpq->kpq", w[:, :, r, s].astype(np.int64), window)
    assert (wrong[0, 0, 0], right[0, 0, 0], np.count_nonzero(wrong != right)) == (ANSWER, REFERENCE, ELEMENTS)
    assert np.array_equal(right, WRONG.reference(x, w)[0])


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"])
def test_the_recorded_kernel_is_miscompiled_unless_its_bytes_are_hidden(monkeypatch: pytest.MonkeyPatch, arch: str) -> None:
    """Found in what NVRTC makes of the old text; the new one compiles."""
    schedule = Schedule.parse(SCHEDULE)
    with pytest.raises(nvrtc.NvrtcError, match="miscompiled: dp2a.* takes bytes of memory for 16-bit numbers"):
        nvrtc.compile_cubin(plain(monkeypatch, WRONG, schedule), arch, cache=False)
    kernel = generate(WRONG, schedule, "h100")
    assert "x_reg[0] = opaque(x_group.x);" in kernel.source and "w_reg = w_now" in kernel.source
    assert nvrtc.compile_cubin(kernel, arch, cache=False).registers > 0


def tiled(name: str, op: Operator = SMALL, **knobs: int) -> Kernel:
    """A kernel whose tiles have two columns, two rows or both."""
    return make_kernel(op, make_schedule(op, *TILES[name], vector=2, unroll=4, **knobs))


def test_bytes_two_apart_along_the_reduction_are_hidden() -> None:
    """Of either operand, loaded one by one or two at a time; nothing else is: it would cost instructions."""
    assert {name: hidden_in(tiled(name)) for name in TILES} == {"columns": {"A", "B"}, "rows": {"A"}, "both": {"A", "B"}}
    wide = make_kernel(SMALL, make_schedule(SMALL, [4, 4, 2], [4, 8, 8], vector=4, unroll=4))
    assert "opaque" not in wide.source
    floats = operators.gemm(12, 8, 8, dtype="float16")
    assert "opaque" not in tiled("both", floats).source
    maximum = operators.max_pool2d(1, 2, 6, 6, 2, 2, 2, 0, dtype="int8")
    assert "opaque" not in make_kernel(maximum, make_schedule(maximum, [1, 1, 1, 2, 2, 2], [1, 1, 1, 2, 2, 2])).source


def hidden_in(kernel: Kernel) -> set[str]:
    """Tensors whose elements are hidden."""
    return set(re.findall(r"(\w+)_reg\S* = opaque\(", kernel.source))


def test_hidden_bytes_are_right() -> None:
    """In the emulator, with and without registers filled ahead."""
    kernels = [tiled(name, register_buffer=buffer) for name in TILES for buffer in (1, 2)]
    check([*kernels, generate(WRONG, Schedule.parse(SCHEDULE), "h100")], np.random.default_rng(3))


@pytest.mark.thorough
@needs_nvrtc
@pytest.mark.parametrize("arch", thorough_but(MACHINES, "sm_90"))
def test_nvrtc_gets_int8_products_right(arch: str) -> None:
    """Random schedules of small tiles; what it makes of a text differs from process to process."""
    rng = np.random.default_rng([4, int(arch[3:])])
    kernels = [make_kernel(op, random_schedule(op, rng, MACHINES[arch]), MACHINES[arch]) for op in PRODUCTS for _ in range(3)]
    for kernel in [*kernels, *(tiled(name) for name in TILES)]:
        assert nvrtc.compile_cubin(kernel, arch, cache=False).registers > 0


LOADED = "ld.shared.u32 \t%r1, [%rd1];\n"
ENTRY = ".visible .entry gg(\n)\n{\n"
PACKED = "mov.b32 %r1, {%rs1, %rs2};\n"
DOT = "dp2a.lo.s32.s32 \t%r9, %r1, %r2, %r9;\n"


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (LOADED, 1),
        ("ld.global.nc.b32 %r1, [%rd1+4];\n", 1),
        ("ld.shared.v2.u32 {%r1, %r7}, [%rd1];\n", 1),
        ("@%p1 ld.shared.u32 %r1, [%rd1];\n", 1),
        ("ld.shared.v2.u16 {%rs1, %rs2}, [%rd1];\n" + PACKED, 1),
        ("ld.shared.s8 %rs1, [%rd1];\nld.shared.s8 %rs2, [%rd1+2];\n" + PACKED, 0),
        ("ld.shared.v2.u8 {%rs3, %rs4}, [%rd1];\ncvt.s16.s8 %rs1, %rs3;\ncvt.s16.s8 %rs2, %rs4;\n" + PACKED, 0),
        ("cvt.s32.s8 %r3, %r5;\ncvt.s32.s8 %r4, %r6;\nprmt.b32 %r1, %r3, %r4, 4180;\n", 0),
        (LOADED + "}\n" + ENTRY + "prmt.b32 %r1, %r3, %r4, 4180;\n", 0),
    ],
)  # fmt: skip
def test_raw_words_are_found(made: str, found: int) -> None:
    """Whole words and halves of memory; not bytes with their signs, nor a register of that name in another kernel."""
    assert len(raw_words(ENTRY + made + DOT + "}\n")) == found
    assert raw_words(ENTRY + made + DOT.replace("dp2a.lo", "dp4a") + "}\n") == ()


def operators_of(dtype: str) -> list[Operator]:
    """The float32 operators of `OPERATORS` in another data type."""
    found = []
    for op in OPERATORS:
        if op.dtype == "float32" and (op.body == "multiply_add" or dtype not in PRODUCT_TYPES):
            plain = str(op.renamed(epilogue=()))
            same = operators.parse(f'{plain.removesuffix(")")}, dtype="{dtype}")')
            found.append(same.with_epilogue(*(stage.name for stage in op.epilogue)))
    return found


@pytest.mark.parametrize("dtype", thorough_but(["float16", "bfloat16", "tf32", "tf32x3"], "bfloat16"))
def test_random_schedules_are_right(dtype: str) -> None:
    rng = np.random.default_rng([11, len(dtype)])
    check_halves([make_kernel(op, random_schedule(op, rng)) for op in operators_of(dtype)], seeds=1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_padding_of_a_maximum_never_wins(dtype: str) -> None:
    """Minus infinity in 16 bits, where all elements of a window are negative."""
    op = operators.max_pool2d(1, 2, 6, 7, 3, 3, 2, 1, dtype=dtype)
    kernel = make_kernel(op, make_schedule(op, [1, 1, 1, 2, 1, 1], [1, 2, 4, 4, 2, 2]))
    draw = make_draws(op, 0)[0]
    x = draw.inputs[0] | 0x8000 if dtype == "bfloat16" else -np.abs(draw.inputs[0])
    with EmulatedKernels([kernel]) as program:
        np.testing.assert_array_equal(decode(program.run(0, [x]), dtype), op.reference(x))


@pytest.mark.thorough
@needs_nvrtc
@pytest.mark.parametrize("arch", thorough_but(ARCHES, "sm_75", "sm_90"))
def test_nvrtc_takes_them(arch: str) -> None:
    rng = np.random.default_rng([12, int(arch[3:])])
    for dtype in ("float16", "bfloat16"):
        for op in operators_of(dtype)[::4]:
            compiled = nvrtc.compile_cubin(make_kernel(op, random_schedule(op, rng, ARCHES[arch]), ARCHES[arch]))
            assert "warning" not in compiled.log, compiled.log
