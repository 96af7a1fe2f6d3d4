"""Convolutions as implicit matrix products on CUDA cores: right, as large as legality says, gathered as promised."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen import generate
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.compiled import plain
from gensor_gym.graph.resources import shared_bytes_of
from tests.codegen.cuda.test_codegen_cuda import ARCHES, MACHINES, check
from tests.support.cuda_schedules import make_kernel, make_schedule
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import needs_nvrtc

CONVOLUTIONS = (
    operators.conv2d(1, 5, 7, 9, 6, 3, 3, padding=1).with_epilogue("bias", "relu"),
    operators.conv2d(2, 4, 9, 8, 7, 3, 2, stride=2, padding=1),
    operators.conv2d(1, 4, 8, 7, 4, 3, 3, dilation=2, groups=2, padding=2).with_epilogue("residual"),
    operators.conv2d(1, 3, 13, 11, 5, 5, 1, padding=2),
    operators.conv2d(3, 6, 4, 4, 8, 1, 1),
    operators.conv2d(1, 4, 5, 6, 4, 2, 3, padding=1, dtype="int8"),
)


@pytest.mark.parametrize("stages", thorough_but([1, 2, 3], 1, 3))
def test_implicit_products_are_right(stages: int) -> None:
    """Strides, dilation, groups, padding, whole windows and parts of windows in a step, all layouts."""
    kernels = []
    for number, op in enumerate(CONVOLUTIONS):
        lead = [1, 2, 4, 4] if len(op.spatial) == 4 else [1, 1, 2, 4, 4]
        first = [1] * (len(lead) - 1) + [2]
        for window in ((1, 1), (op.extents[-2], op.extents[-1])):
            knobs = {"stages": stages, "shared_layout": (stages + number) % 3, "register_buffer": 1 + number % 2}
            schedule = make_schedule(
                op, [*first, 1, 1, 1], [*lead, 2, *window], vector=4, unroll=4, convolution=3, **knobs
            )
            kernels.append(make_kernel(op, schedule))
    check(kernels, np.random.default_rng([1, stages]))


def test_pixels_of_a_step_lie_side_by_side() -> None:
    """A strided convolution loads its pixels as vectors, which a box of the image does not allow."""
    op = operators.conv2d(1, 8, 32, 32, 16, 3, 3, stride=2, padding=1)
    tiles = ([1, 4, 1, 4, 1, 1, 1], [1, 16, 4, 16, 4, 1, 1])
    matrix = make_kernel(op, make_schedule(op, *tiles, vector=4, convolution=3, stages=2))
    box = make_kernel(op, make_schedule(op, *tiles, vector=4, convolution=0, stages=2))
    assert "const float4 x_group" in matrix.source
    assert "const float4 x_group" not in box.source
    assert "x: matrix of 4 x 1 x 1 x 1 x 4 x 16" in matrix.source
    assert matrix.launches[0].shared_bytes == 2 * 4 * (4 * 64 + 4 * 16)


def test_offsets_are_found_before_the_loop() -> None:
    """What a thread gathers is fixed before the steps: no division by a dimension of the tile within them."""
    op = operators.conv2d(1, 16, 14, 14, 32, 3, 3, padding=1)
    schedule = make_schedule(op, [1, 4, 1, 2, 1, 1, 1], [1, 32, 4, 14, 2, 3, 3], vector=4, convolution=3, stages=2)
    source = make_kernel(op, schedule).source
    inside = source[source.index("const auto load_tiles") : source.index("commit_copies();\n  }")]
    assert "x_inside >> trip & 1" in inside
    assert not re.search(r"thread[^<]*[/%]", inside)


def test_a_direct_convolution_stays_direct() -> None:
    """Where windows share nothing both are one program; depthwise convolutions have no such product."""
    op = operators.conv2d(1, 5, 4, 4, 6, 1, 1)
    tiles = ([1, 2, 1, 1, 1, 1, 1], [1, 4, 4, 4, 5, 1, 1])
    assert (
        make_kernel(op, make_schedule(op, *tiles, convolution=3)).digest == make_kernel(op, make_schedule(op, *tiles)).digest
    )
    depthwise = operators.depthwise_conv2d(1, 3, 9, 8, 3, 3, 2, 1)
    with pytest.raises(ValueError, match=r"knob convolution=3: CUDA code takes \(0,\)"):
        make_kernel(depthwise, make_schedule(depthwise, [1] * 6, [1, 1, 4, 4, 3, 3], convolution=3))


@pytest.mark.thorough
@needs_nvrtc
@pytest.mark.parametrize("arch", thorough_but(ARCHES, "sm_90"))
def test_legal_schedules_compile_and_take_no_more_than_counted(arch: str) -> None:
    """Random walks with the knob set: shared memory within what legality counted, a cubin without warnings."""
    rng = np.random.default_rng([3, ARCHES.index(arch)])
    done = 0
    for op in [CONVOLUTIONS[i] for i in (0, 1, 2, 3)] * 12:
        graph = ConstructionGraph(op, MACHINES[arch], space="extended")
        schedule = graph.random_schedule(rng, steps=40)
        if schedule.knob("convolution") != 3 or schedule.knob("tensor_core"):
            continue
        kernel = generate(op, schedule, graph.hardware)
        assert kernel.launches[0].shared_bytes <= shared_bytes_of(plain(schedule.row), graph.tables.ints)
        if done < 4:
            assert "warning" not in nvrtc.compile_cubin(kernel, arch).log
        done += 1
    assert done >= 4
