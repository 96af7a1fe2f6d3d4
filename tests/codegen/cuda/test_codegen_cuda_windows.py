"""Windows (pooling, depthwise and plain convolutions) on CUDA cores: rows copied 16 bytes at a time, by few registers."""

from __future__ import annotations

import itertools
import math
from itertools import product

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen import generate
from gensor_gym.codegen.cuda import nvrtc, sass
from gensor_gym.codegen.cuda.simt.copies import fewest_rounds
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.gpu.gpu import resident_blocks
from gensor_gym.graph.compiled import plain
from gensor_gym.graph.resources import shared_bytes_of, threads_of
from gensor_gym.graph.tables.geometry import spatial_product
from gensor_gym.hardware.occupancy import blocks_per_unit
from gensor_gym.operators.types import Operator
from tests.codegen.cuda.test_codegen_cuda import check
from tests.support.cuda_schedules import make_kernel, make_schedule
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import needs_nvrtc

needs_disassembler = pytest.mark.skipif(
    not (sass.is_available() and nvrtc.is_available()), reason=f"pip install {sass.PACKAGE} {nvrtc.PACKAGES}"
)

WINDOWS = (
    operators.max_pool2d(1, 3, 7, 12, 3, 3, 1, 1),
    operators.max_pool2d(2, 2, 9, 20, 3, 3, 2, 1),
    operators.max_pool2d(1, 2, 6, 12, 3, 2, 1, 1, dtype="int8"),
    operators.max_pool2d(1, 2, 8, 8, 2, 2, 2, 0),
    operators.avg_pool2d(1, 3, 8, 20, 3, 3, 2, 1).with_epilogue("relu"),
    operators.avg_pool2d(1, 3, 9, 12, 3, 5, 1, (1, 2)),
    operators.depthwise_conv2d(1, 3, 9, 12, 3, 3, 1, 1),
    operators.depthwise_conv2d(2, 3, 9, 20, 3, 3, 2, 1).with_epilogue("bias", "relu"),
    operators.conv2d(1, 3, 8, 12, 4, 3, 3, padding=1),
    operators.conv2d(1, 4, 7, 16, 4, 3, 3, dilation=2, groups=2, padding=2),
)
"""Awkward extents, rows of whole copies of 2 or 4 elements."""


def tiles(op: Operator, columns: int) -> tuple[list[int], list[int]]:
    """Register and block tiles: the whole window in a step, so many columns a block, two a thread."""
    register, block = [1] * len(op.axes), [1] * len(op.axes)
    register[op.spatial[-1]], block[op.spatial[-1]] = 2, columns
    block[op.spatial[-2]] = 3
    for a in op.reduce[-2:]:
        block[a] = op.extents[a]
    return register, block


@pytest.mark.parametrize(("machine", "vector"), thorough_but(product(("t4", "a100"), (2, 4)), ("a100", 4)))
def test_rows_of_windows_are_copied_wide(machine: str, vector: int) -> None:
    """Strides 1 and 2, padding of every kind, one and several buffers, padded and swizzled rows: right, and wide."""
    kernels = []
    for number, (op, stages) in enumerate(itertools.product(WINDOWS, (1, 2))):
        knobs = {"stages": stages, "shared_layout": number % 3, "vector": vector}
        for columns in (8, 4):
            kernels.append(make_kernel(op, make_schedule(op, *tiles(op, columns), **knobs), machine))
            assert f"{vector} elements a copy" in kernels[-1].source
    check(kernels, np.random.default_rng([21, vector]))


def test_narrow_where_copies_would_be_cut() -> None:
    """Rows of odd length, tiles and steps that do not begin whole copies apart, knob vector at 1."""
    odd, even = operators.max_pool2d(1, 2, 8, 9, 3, 3, 1, 1), operators.max_pool2d(1, 2, 8, 12, 3, 3, 1, 1)
    for op, columns, knobs in ((odd, 4, {"vector": 4}), (even, 6, {"vector": 4}), (even, 4, {})):
        source = make_kernel(op, make_schedule(op, *tiles(op, columns), **knobs)).source
        assert ("2 elements a copy" if op is even and columns == 6 else "one element a copy") in source


@pytest.mark.thorough
@needs_disassembler
@pytest.mark.parametrize(("stride", "rows"), [(1, 4), (2, 1)])
def test_machine_code_loads_16_bytes(stride: int, rows: int) -> None:
    """Pooling with several loads of 16 bytes before the first is stored; no spills."""
    op = operators.max_pool2d(4, 32, 56, 56, 3, 3, stride, 1)
    block = [1, 4, 8 // stride, 56 // stride, 3, 3]
    schedule = make_schedule(op, [1, 1, rows, 4, 1, 1], block, vector=4, unroll=4)
    compiled = nvrtc.compile_cubin(make_kernel(op, schedule))
    (lines,) = sass.instructions(sass.disassemble(compiled.cubin)).values()
    wide = [i for i, line in enumerate(lines) if line.startswith("LDG.E.128")]
    stores = [i for i, line in enumerate(lines) if line.startswith("STS")]
    assert compiled.spill_bytes == 0
    assert len(wide) >= 4 and sum(i < stores[0] for i in wide) >= 4


@pytest.mark.parametrize(("counts", "threads"), [((5,), 3), ((4, 10, 5), 128), ((7, 3, 3), 16), ((2, 9, 6), 7), ((16, 2), 32)])
def test_threads_cover_a_box_in_the_fewest_rounds(counts: tuple[int, ...], threads: int) -> None:
    """As few as any box of threads."""

    def rounds(lanes: tuple[int, ...]) -> int:
        return math.prod(-(-c // n) for c, n in zip(counts, lanes, strict=True))

    every = itertools.product(*(range(1, c + 1) for c in counts))
    found = fewest_rounds(counts, threads)
    assert math.prod(found) <= threads
    assert rounds(found) == min(rounds(lanes) for lanes in every if math.prod(lanes) <= threads)


@pytest.mark.thorough
@needs_nvrtc
@pytest.mark.parametrize("machine", thorough_but(["a100", "h200"], "h200"))
def test_registers_of_convolutions_are_as_counted(machine: str) -> None:
    """As many blocks of random legal convolutions are resident as the model counts, or more; they hardly spill."""
    rng, spilled, programs = np.random.default_rng(22), 0, 12
    graph = ConstructionGraph("conv2d(n=4, c=32, h=28, w=28, k=64, r=3, s=3, padding=1)", machine, space="extended")
    ints, hw, found = graph.tables.ints, graph.hardware, 0
    while found < programs:
        row = plain((schedule := graph.random_schedule(rng, steps=int(rng.integers(20, 60)))).row)
        if schedule.knob("tensor_core") or threads_of(row, ints) < 64 or spatial_product(row, 0, ints) < 8:
            continue
        found += 1
        kernel = generate(graph.operator, schedule, hw)
        assert kernel.launches[0].shared_bytes <= shared_bytes_of(row, ints)
        compiled = nvrtc.compile_cubin(kernel)
        real = blocks_per_unit(
            threads_of(row, ints), compiled.registers, kernel.launches[0].shared_bytes, hw.threads_per_unit, hw.blocks_per_unit,
            hw.registers_per_unit, hw.level("shared").capacity, hw.shared_granularity, hw.shared_reserved,
        )  # fmt: skip
        assert real >= resident_blocks(row, ints)
        spilled += compiled.spill_bytes > 0
    assert spilled <= 1
