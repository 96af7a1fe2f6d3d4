"""Kernels for wgmma made for tests, and what is wrong with what they compute in the emulator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.codegen import generate
from gensor_gym.codegen.build import generate_variant
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.cuda.codegen import generate_cuda
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import lower
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.gpu.traffic import grid_blocks
from gensor_gym.graph.compiled import plain
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.matrices.choices import column_step
from gensor_gym.graph.resources import shared_bytes_of, threads_of
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.geometry import columns_of
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.answers.expectation import decode, make_draws
from gensor_gym.measure.emulator.emulator import EmulatedKernels, EmulatorError
from gensor_gym.operators.types import Operator
from tests.support.cuda_schedules import make_schedule
from tests.support.thorough import first_of_each, thorough_but

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason=f"NVRTC is not installed: {nvrtc.PACKAGES}")
H200 = hardware.get("h200")
TINY = replace(H200, name="tiny", units=1)
"""So few multiprocessors that persistent blocks have several tiles each."""


DEPTHS = {
    "float32": (8, 32), "float16": (16, 64), "bfloat16": (16, 64), "tf32": (8, 32), "int8": (32, 128), "float8_e4m3fn": (32, 128),
}  # fmt: skip
"""Elements of the reduction in one instruction and in a step of 128 bytes, by data type (of float32 there is none)."""


def wgmma_kernel(op: Operator, tile: list[int], block: list[int], hw: Hardware = H200, **knobs: int) -> Kernel:
    """The kernel of `wgmma_schedule`."""
    return generate_cuda(lower(op, wgmma_schedule(op, tile, block, **knobs), hw))


def wgmma_schedule(op: Operator, tile: list[int], block: list[int], **knobs: int) -> Schedule:
    """A schedule of a consumer's tile and a block tile of m and n; a batch one by one, 128 bytes of the reduction."""
    batch, (chunk, step) = [1] * (len(op.axes) - 3), DEPTHS[op.dtype]
    return make_schedule(op, [*batch, *tile, chunk], [*batch, *block, step], tensor_core=2, **knobs)


def pingpong_kernel(op: Operator, tile: list[int], block: list[int], hw: Hardware = H200, **knobs: int) -> Kernel:
    """The kernel of the same schedule as of `wgmma_kernel` whose consumers take turns; an AssertionError where it has none."""
    kernel = generate_variant(op, wgmma_schedule(op, tile, block, **knobs), hw, "pingpong")
    assert kernel is not None, f"{op}: {block} on {hw.name}"
    return kernel


def faults(kernels: list[Kernel], seeds: int = 1) -> list[str]:
    """What is wrong with the outputs of kernels compiled together, or how they ended."""
    with EmulatedKernels(kernels) as program:
        return [fault for number in range(len(kernels)) for fault in faults_of(program, number, seeds)]


def faults_of(program: EmulatedKernels, number: int, seeds: int) -> list[str]:
    """What is wrong with one of them, for each of so many seeds that shows a fault."""
    found, op = [], program.kernels[number].operator
    for seed in range(seeds):
        draw = make_draws(op, seed)[0]
        try:
            fault = draw.fault(decode(program.run(number, draw.inputs, seed), op.output.dtype))
        except EmulatorError as error:
            fault = str(error)
        found += [f"{op}: {fault}"] if fault else []
    return found


def check_caught(program: EmulatedKernels, number: int, words: str, seeds: int = 3) -> None:
    """A damaged kernel shows: in every order of events a wrong answer, or words of the emulator that match."""
    found = faults_of(program, number, seeds)
    assert len(found) == seeds
    assert all(re.search(words, fault) for fault in found), "\n".join(fault[:300] for fault in found)


def with_faults(kernel: Kernel, planted: Mapping[str, tuple[str, str, str]], names: Iterable[str]) -> list[Kernel]:
    """The sound kernel, then one with each fault of these names: (text, what stands in its place, words of `check_caught`)."""
    assert all(old in kernel.source for old, _, _ in planted.values()), kernel.source
    damaged = [kernel.source.replace(*planted[name][:2]) for name in names]
    return [kernel, *(replace(kernel, source=source) for source in damaged)]


def gemm(m: int, n: int, k: int, dtype: str = "bfloat16", *stages: str) -> Operator:
    """A product with an epilogue."""
    return operators.gemm(m, n, k, dtype=dtype).with_epilogue(*stages)


def check_planted(kernel: Kernel, planted: Mapping[str, tuple[str, str, str]], seeds: int = 3) -> None:
    """Each of the faults shows when it is planted in a kernel."""
    with EmulatedKernels(with_faults(kernel, planted, planted)) as program:
        for number, (_, _, words) in enumerate(planted.values(), 1):
            check_caught(program, number, words, seeds)


def check_limit(op: Operator, fits: Sequence[list[int]], exceeds: Sequence[list[int]], words: str) -> None:
    """Of two pairs of a register and a block tile the first is legal; the second is not, and generating it says why."""
    graph = ConstructionGraph(op, H200, space="extended")
    one, two = (make_schedule(op, *tiles, tensor_core=2, stages=2) for tiles in (fits, exceeds))
    assert graph.is_legal(one) and not graph.is_legal(two)
    with pytest.raises(ValueError, match=words):
        generate(op, two, H200)


def legal_kernels(op: Operator, count: int, rng: np.random.Generator, cluster: int = 1) -> list[Kernel]:
    """Kernels of random schedules that the rules of the graph let pass; all of these can be generated."""
    graph, kernels = ConstructionGraph(op, H200, space="extended"), []
    across, (chunk, step) = column_step(op), DEPTHS[op.dtype]
    while len(kernels) < count:
        rows, columns = 64 * int(rng.integers(1, 4)), across * int(rng.integers(1, 256 // across + 1))
        workers = [int(n) for n in rng.choice([1, 1, 2, 3], 2)]
        knobs = {name: int(rng.choice(KNOBS[KNOB_INDEX[name]].values)) for name in ("stages", "raster", "split_k", "persistent")}
        knobs["cluster"] = cluster
        batch = [1] * (len(op.axes) - 3)
        tiles = [*batch, rows, columns, chunk], [*batch, rows * workers[0], columns * workers[1], step]
        schedule = make_schedule(op, *tiles, tensor_core=2, **knobs)
        if graph.is_legal(schedule):
            kernel = generate(op, schedule, H200)
            assert kernel.main.shared_bytes == shared_bytes_of(plain(schedule.row), graph.tables.ints)
            assert kernel.main.block[0] == threads_of(plain(schedule.row), graph.tables.ints)
            kernels.append(kernel)
    return kernels


def legal_convolutions(
    op: Operator, count: int, rng: np.random.Generator, images: Sequence[int] = (1, 1, 2), rows: Sequence[int] = (64, 128),
    persistent: Sequence[int] = (0, 1),
) -> list[Kernel]:  # fmt: skip
    """As `legal_kernels`, of a convolution of 16 bits; `images` and `rows` are choices for a consumer's tile."""
    graph, kernels = ConstructionGraph(op, H200, space="extended"), []
    choices = {"stages": (1, 2, 3, 4), "raster": (1, 2, 4), "split_k": (1, 1, 2), "persistent": persistent, "cluster": (1, 2)}
    while len(kernels) < count:
        inner = [int(rng.choice(images)), int(rng.choice(rows)), int(rng.integers(1, 8)), 8 * int(rng.integers(1, 8))]
        outer = [tile * int(across) for tile, across in zip(inner, rng.choice([1, 1, 1, 2], 4), strict=True)]
        knobs = {name: int(rng.choice(values)) for name, values in choices.items()}
        schedule = make_schedule(op, [*inner, 16, 1, 1], [*outer, 64, 1, 1], tensor_core=2, **knobs)
        if graph.is_legal(schedule):
            kernel, row, ints = generate(op, schedule, H200), plain(schedule.row), graph.tables.ints
            assert kernel.operator == op and kernel.main.shared_bytes == shared_bytes_of(row, ints)
            assert kernel.main.block[0] == threads_of(row, ints)
            blocks = grid_blocks(row, ints)
            if knobs["persistent"] < 2:  # shares of steps may be more than there are tiles
                assert kernel.main.grid[0] == blocks or knobs["persistent"] and kernel.main.grid[0] < blocks
            if op.axes[-1].extent > 1:  # of 1x1, what a tile has across is not the window
                assert f"COLUMNS = {columns_of(row, ints)};" in kernel.source
            kernels.append(kernel)
    return kernels


def assert_compiles_well(kernel: Kernel) -> None:
    """NVRTC neither spills registers nor serialises wgmma, and warns of nothing."""
    compiled = nvrtc.compile_cubin(kernel)
    assert compiled.spill_bytes == 0 and compiled.loss == ""
    assert compiled.warnings == () and "arning" not in compiled.log, f"{compiled.log}\n{kernel.source}"


def right(cases: Mapping[str, Sequence[Kernel]], *default: str) -> Callable[..., None]:
    """A test: kernels at extents that no tile divides are within the bound that verification uses; two orders of events."""

    @pytest.mark.parametrize("kernels", first_of_each(cases, *default))
    def test(kernels: list[Kernel]) -> None:
        assert faults(kernels, seeds=2) == []

    return test


def planted_show(planted_faults: Mapping[str, tuple[str, ...]], *default: str, seeds: int = 3) -> Callable[..., None]:
    """A test: each fault in the module's DAMAGED shows in every order of events, as a wrong answer or by the emulator's words.

    Kernels of faults that are not asked for by `default` are compiled where all tests run.
    """

    @pytest.mark.parametrize("name", thorough_but(planted_faults, *default))
    def test(damaged: EmulatedKernels, planted: list[str], name: str) -> None:
        check_caught(damaged, 1 + planted.index(name), planted_faults[name][-1], seeds)

    return test


def compile_well(menu: Mapping[str, Kernel], *default: str) -> Callable[..., None]:
    """A test of `assert_compiles_well`; all of it is thorough where no `default` is named."""

    @needs_nvrtc
    @pytest.mark.parametrize("name", thorough_but(menu, *default))
    def test(name: str) -> None:
        assert_compiles_well(menu[name])

    return test
