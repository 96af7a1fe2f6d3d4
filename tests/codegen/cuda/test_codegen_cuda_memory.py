"""CUDA kernels: memory, legal schedules, convolutions as implicit products."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen import generate
from gensor_gym.codegen.cuda import nvrtc, sass
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.compiled import plain
from gensor_gym.graph.resources import shared_bytes_of, threads_of
from gensor_gym.operators.types import Operator
from tests.codegen.cuda.test_codegen_cuda import ARCHES, MACHINES, check
from tests.support.cuda_schedules import MAX_THREADS, OPERATORS, make_kernel, make_schedule
from tests.support.thorough import thorough_but
from tests.support.wgmma_kernels import needs_nvrtc

GPUS = {"sm_75": "t4", "sm_80": "a100", "sm_90": "h200"}
needs_nvdisasm = pytest.mark.skipif(not sass.is_available(), reason=f"no disassembler: pip install {sass.PACKAGE}")


def gemv(hw: str = "h200", m: int = 4096, k: int = 4096) -> Kernel:
    """Two rows a thread, 32 threads a row, four elements at a time."""
    op = operators.gemv(m, k)
    return make_kernel(op, make_schedule(op, [2, 4], [16, 1024], vector=4, unroll=8, reduce_threads=32), hw)


def row_sum(hw: str = "h200", m: int = 4096, k: int = 4096) -> Kernel:
    """One row a warp."""
    op = operators.reduce_sum(m, k)
    return make_kernel(op, make_schedule(op, [1, 4], [8, 1024], vector=4, unroll=8, reduce_threads=32), hw)


def elementwise(hw: str = "h200", rows: int = 4096, columns: int = 4096) -> Kernel:
    """Sixteen elements a thread, in four groups of four."""
    op = operators.elementwise("add", rows * columns)
    return make_kernel(op, make_schedule(op, [16], [4096], [4], vector=4), hw)


def pooling(hw: str = "h200", size: int = 128) -> Kernel:
    """Whole windows of four outputs a thread, from shared memory."""
    op = operators.avg_pool2d(8, 64, size, size, 2, 2, 2, 0)
    return make_kernel(op, make_schedule(op, [1, 1, 2, 4, 2, 2], [1, 1, 16, 64, 2, 2], vector=4), hw)


KERNELS = {"gemv": gemv, "row_sum": row_sum, "elementwise": elementwise, "pooling": pooling}


def loads_before_use(cubin: bytes, entry: str, kind: str) -> int:
    """Most global loads in a row without an instruction between them that could wait for one of them."""
    most = run = 0
    for line in sass.instructions(sass.disassemble(cubin))[entry]:
        if line.startswith(kind):
            run += 1
            most = max(most, run)
        elif line.startswith(("FADD", "FFMA", "FMUL", "FMNMX", "STS", "STG", "BAR", "BRA", "SHFL", ".")):
            run = 0
    return most


@needs_nvrtc
@needs_nvdisasm
@pytest.mark.parametrize("arch", thorough_but(GPUS, "sm_90"))
@pytest.mark.parametrize("name", thorough_but(KERNELS, list(KERNELS)[0]))
def test_four_loads_are_in_flight(name: str, arch: str) -> None:
    """Loads one after the other before the first of them is used, of 16 bytes except for windows; no spills."""
    kernel = KERNELS[name](GPUS[arch])
    compiled = nvrtc.compile_cubin(kernel, arch)
    assert compiled.spill_bytes == 0
    kind = "LDG.E" if name == "pooling" else "LDG.E.128"
    assert loads_before_use(compiled.cubin, kernel.launches[0].entry, kind) >= 4


def test_lanes_meet_by_shuffles() -> None:
    """A warp that shares an output needs no shared memory for it."""
    assert "__shfl_down_sync" in row_sum().source
    assert row_sum().launches[0].shared_bytes == 0


def test_interior_steps_compute_without_guards() -> None:
    """A branch on the step picks points without conditions; what divides has neither."""
    source = row_sum(k=1500, m=13).source
    condition = r"if \(block_m \+ 7 < 13 && block_k \+ 1023 < 1500\) "
    interior, edge = re.search(condition + r"(\{.*?\n    \})\s+else (.*)", source, re.S).groups()
    assert "?" not in interior
    assert "?" in edge
    assert "else" not in row_sum().source
    assert "?" not in row_sum().source


def test_awkward_extents_are_right() -> None:
    """Interior and edge blocks, interior and edge steps."""
    prime = operators.gemv(37, 1300)
    odd = operators.elementwise("mul", 13, 332).with_epilogue("relu")
    pool = operators.max_pool2d(1, 2, 21, 23, 3, 3, 2, 1)
    depth = operators.depthwise_conv2d(1, 2, 17, 19, 3, 3, 1, 1)
    rows = operators.reduce_sum(11, 1290)
    kernels = [
        gemv(m=37, k=1300),
        row_sum(m=13, k=1500),
        make_kernel(prime, make_schedule(prime, [1, 4], [8, 128], vector=4, unroll=2, reduce_threads=16, split_k=2)),
        make_kernel(odd, make_schedule(odd, [1, 8], [2, 64], [1, 2], vector=4)),
        make_kernel(pool, make_schedule(pool, [1, 1, 1, 2, 3, 3], [1, 1, 4, 8, 3, 3])),
        make_kernel(depth, make_schedule(depth, [1, 1, 1, 4, 3, 3], [1, 2, 4, 8, 3, 3])),
        make_kernel(rows, make_schedule(rows, [1, 2], [4, 64], vector=2, unroll=4, reduce_threads=8)),
        make_kernel(rows, make_schedule(rows, [2, 4], [4, 256], vector=4, unroll=4, reduce_threads=1)),
    ]
    check(kernels, np.random.default_rng(6))


BATCHES = 4


def legal_kernel(op: Operator, machine: str, rng: np.random.Generator) -> Kernel:
    """A random legal schedule of the extended space; its shared memory is what legality counted."""
    graph = ConstructionGraph(op, machine, space="extended")
    while True:
        schedule = graph.random_schedule(rng, steps=int(rng.integers(10, 50)))
        if threads_of(plain(schedule.row), graph.tables.ints) <= MAX_THREADS:
            break
    assert graph.is_legal(schedule)
    kernel = generate(op, schedule, graph.hardware)
    assert max(launch.shared_bytes for launch in kernel.launches) <= shared_bytes_of(plain(schedule.row), graph.tables.ints)
    return kernel


@pytest.mark.parametrize("batch", thorough_but(range(BATCHES), 2))
def test_random_legal_schedules_are_right(batch: int) -> None:
    rng = np.random.default_rng([7, batch])
    ops = [OPERATORS[int(i)] for i in rng.permutation(len(OPERATORS))[:16]]
    check([legal_kernel(op, "h200", rng) for op in ops], rng)


@pytest.mark.thorough
@needs_nvrtc
@pytest.mark.parametrize("arch", thorough_but(ARCHES, "sm_75"))
def test_nvrtc_takes_random_legal_schedules(arch: str) -> None:
    rng = np.random.default_rng([8, ARCHES.index(arch)])
    for op in OPERATORS[:20]:
        compiled = nvrtc.compile_cubin(legal_kernel(op, MACHINES[arch], rng), arch)
        assert 0 < compiled.registers <= 255
        assert "warning" not in compiled.log


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
