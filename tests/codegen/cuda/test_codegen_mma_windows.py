"""Windows on tensor cores: rows that a window shifts by single elements are put together of aligned loads."""

from __future__ import annotations

import pytest

from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.kernel import Kernel
from tests.codegen.cuda.test_codegen_mma import check, tensor_kernel
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import needs_nvrtc

TYPES = {"a100": {"float16": 16, "bfloat16": 16, "int8": 32}, "t4": {"float16": 8, "int8": 16}}


CASES = [(machine, dtype) for machine, dtypes in TYPES.items() for dtype in dtypes]


def kernels(machine: str, dtype: str) -> list[Kernel]:
    """Padding, dilation, groups, windows that overhang; one buffer and several."""
    found, d, w = [], TYPES[machine][dtype], 32 if dtype == "int8" else 16
    for text, warp, block, knobs in (
        (f"1, {d + 3}, 9, {w}, 20, 3, 3, padding=1", [1, 16, 1, 8, d, 1, 1], [1, 32, 2, w // 2, d, 1, 3],
         {"stages": 2, "shared_layout": 2}),
        (f"2, {d}, 6, {w}, 16, 3, 4, padding=2", [1, 16, 1, 8, d, 1, 1], [1, 16, 2, w, d, 3, 4],
         {"stages": 2 if machine == "t4" else 3, "shared_layout": 1, "register_buffer": 2}),
        (f"1, {2 * d}, 7, {w}, 16, 2, 5, dilation=2, padding=3, groups=2", [1, 1, 16, 1, 8, d, 1, 1],
         [1, 1, 16, 3, w // 2, d, 2, 8], {"stages": 1}),
    ):  # fmt: skip
        kernel = tensor_kernel(f'conv2d({text}, dtype="{dtype}")+bias', warp, block, machine, vector=4, **knobs)
        assert "= shift_bytes(low, high" in kernel.source
        found.append(kernel)
    return found


@pytest.mark.as_shipped
@pytest.mark.parametrize(("machine", "dtype"), thorough_but(CASES, ("a100", "float16")))
def test_shifted_rows_are_right(machine: str, dtype: str) -> None:
    check(kernels(machine, dtype))


def test_element_by_element_where_loads_would_be_cut() -> None:
    """A step with a part of the window, a stride, rows of broken 16 bytes, knob vector below 4; float32 copies by itself."""
    for text, tile, vector in (
        ("1, 16, 9, 16, 20, 3, 3, padding=1", [1, 32, 2, 8, 16, 3, 1], 4),
        ("1, 16, 9, 16, 20, 3, 3, stride=2, padding=1", [1, 32, 2, 8, 16, 1, 3], 4),
        ("1, 16, 9, 12, 20, 3, 3, padding=1", [1, 32, 2, 8, 16, 1, 3], 4),
        ("1, 16, 9, 16, 20, 3, 3, padding=1", [1, 32, 2, 8, 16, 1, 3], 2),
    ):
        source = tensor_kernel(f'conv2d({text}, dtype="float16")', [1, 16, 1, 8, 16, 1, 1], tile, stages=2, vector=vector).source
        assert "shift_bytes" not in source
    shifted = 'conv2d(1, 16, 9, 16, 20, 3, 3, padding=1, dtype="tf32")'
    source = tensor_kernel(shifted, [1, 16, 1, 8, 8, 1, 1], [1, 32, 2, 8, 16, 1, 3], stages=2, vector=4).source
    assert "copy_async<4>(&x_into" in source


@needs_nvrtc
@pytest.mark.parametrize("machine", TYPES)
def test_nvrtc_takes_them_without_spills(machine: str) -> None:
    for kernel in kernels(machine, "float16"):
        compiled = nvrtc.compile_cubin(kernel)
        assert compiled.spill_bytes == 0 and "warning" not in compiled.log
