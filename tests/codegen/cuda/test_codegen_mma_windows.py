"""mma.sync: windows, and legal schedules."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym.codegen import generate
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.compiled import plain
from gensor_gym.graph.resources import registers_of, shared_bytes_of, threads_of
from gensor_gym.hardware.occupancy import blocks_per_unit
from tests.codegen.cuda.test_codegen_mma import check, tensor_kernel
from tests.support.graph_walks import tensor_start, walk
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


MAX_THREADS = 512
OPERATORS = (
    'gemm(m=50, n=40, k=72, dtype="float16")+bias+relu',
    'gemm(m=64, n=64, k=96, dtype="bfloat16")+residual',
    'gemm(m=37, n=56, k=40, dtype="tf32")+bias+gelu',
    'gemm(m=48, n=29, k=64, dtype="tf32x3")+scale',
    'gemm(m=40, n=64, k=130, dtype="int8")+bias+residual',
    'batched_gemm(b=3, m=24, n=20, k=48, dtype="float16")',
    'batched_gemm(b=2, m=24, n=24, k=64, dtype="int8")+relu',
    'conv2d(n=1, c=16, h=9, w=10, k=24, r=3, s=3, padding=1, dtype="float16")+bias+relu',
    'conv2d(n=2, c=32, h=8, w=8, k=20, r=1, s=1, dtype="bfloat16")+residual',
    'conv2d(n=1, c=16, h=11, w=17, k=32, r=3, s=2, stride=2, groups=2, dtype="tf32")',
    'conv2d(n=1, c=34, h=9, w=9, k=20, r=2, s=3, dilation=2, padding=2, dtype="int8")+bias',
)
TURING = tuple(text for text in OPERATORS if "float16" in text.replace("bfloat16", "") or "int8" in text)


def legal_kernel(text: str, machine: str, rng: np.random.Generator) -> Kernel:
    """A kernel with tensor_core=1 at the end of a random walk; its launch is what legality counted."""
    graph = ConstructionGraph(text, machine, space="extended")
    found = None
    while found is None:
        for schedule in walk(graph, rng, int(rng.integers(5, 60)), tensor_start(graph)):
            if schedule.knob("tensor_core") == 1 and threads_of(plain(schedule.row), graph.tables.ints) <= MAX_THREADS:
                found = schedule
    assert graph.is_legal(found)
    kernel, ints, hw = generate(graph.operator, found, graph.hardware), graph.tables.ints, graph.hardware
    launch, threads, nbytes = kernel.launches[0], threads_of(plain(found.row), ints), shared_bytes_of(plain(found.row), ints)
    assert (launch.block, launch.shared_bytes) == ((threads, 1, 1), nbytes)
    resident = blocks_per_unit(
        threads, registers_of(plain(found.row), ints), nbytes, hw.threads_per_unit, hw.blocks_per_unit, hw.registers_per_unit,
        hw.level("shared").capacity, hw.shared_granularity, hw.shared_reserved,
    )  # fmt: skip
    assert f"__launch_bounds__({threads}{f', {resident}' if resident > 1 else ''})" in kernel.source
    return kernel


@pytest.mark.parametrize("batch", thorough_but(range(2), 0))
def test_random_legal_schedules_are_right(batch: int) -> None:
    rng = np.random.default_rng([13, batch])
    check([legal_kernel(text, "a100", rng) for text in OPERATORS], seeds=1)


@pytest.mark.thorough
def test_random_legal_schedules_are_right_on_turing() -> None:
    rng = np.random.default_rng(14)
    check([legal_kernel(text, "t4", rng) for text in TURING for _ in range(2)], seeds=1)


@needs_nvrtc
@pytest.mark.parametrize("machine", thorough_but(["t4", "a100", "rtx3090", "h200"], "h200"))
def test_nvrtc_takes_random_legal_schedules(machine: str) -> None:
    rng = np.random.default_rng([15, len(machine)])
    for text in TURING if machine == "t4" else OPERATORS:
        compiled = nvrtc.compile_cubin(legal_kernel(text, machine, rng))
        assert 0 < compiled.registers <= 255
        assert "warning" not in compiled.log, compiled.log
