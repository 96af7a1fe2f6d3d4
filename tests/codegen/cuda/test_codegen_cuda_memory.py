"""Kernels that memory bounds: wide loads, several of them in flight, no guards inside, lanes folded by shuffles."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.cuda import nvrtc, sass
from gensor_gym.codegen.kernel import Kernel
from tests.codegen.cuda.test_codegen_cuda import check
from tests.support.cuda_schedules import make_kernel, make_schedule
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
