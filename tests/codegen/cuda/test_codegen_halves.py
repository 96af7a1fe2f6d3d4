"""float16, bfloat16, tf32 and tf32x3 on CUDA cores: computed in float32, right for random schedules of every operator."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.measure.answers.expectation import decode, make_draws
from gensor_gym.measure.emulator.emulator import EmulatedKernels
from gensor_gym.operators.types import PRODUCT_TYPES, Operator
from tests.codegen.cuda.test_codegen_mma import ARCHES, check
from tests.support.cuda_schedules import OPERATORS, make_kernel, make_schedule, random_schedule
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import needs_nvrtc


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
    check([make_kernel(op, random_schedule(op, rng)) for op in operators_of(dtype)], seeds=1)


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
