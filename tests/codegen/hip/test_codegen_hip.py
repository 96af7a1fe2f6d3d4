"""Generated HIP text: right in the emulator with waves of 64, compiled for its GPU where a clang can, as the target says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.codegen import build, generate, targets
from gensor_gym.codegen.cuda.codegen import generate_simt
from gensor_gym.codegen.cuda.dialect import CUDA
from gensor_gym.codegen.cuda.plan import make_plan
from gensor_gym.codegen.hip.compile import HipCompileError, compile_hip, find_clang
from gensor_gym.codegen.hip.dialect import HIP
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import lower
from gensor_gym.codegen.targets.hip import HipUnavailableError
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.compiled import plain
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.resources import shared_bytes_of
from gensor_gym.graph.tables.tables import KNOB_BITS
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.emulator.emulator import EmulatorError
from gensor_gym.measure.measurement import Status
from tests.codegen.cuda.test_codegen_cuda import check
from tests.codegen.cuda.test_codegen_cuda_memory import legal_kernel
from tests.support.cuda_schedules import OPERATORS, make_kernel, make_schedule, random_schedule
from tests.support.thorough import thorough_but

MACHINE = "mi300x"
HW = hardware.get(MACHINE)
BATCHES = 7


def has_clang() -> bool:
    """Whether a clang for AMD GPUs is installed."""
    try:
        find_clang()
    except HipCompileError:
        return False
    return True


needs_clang = pytest.mark.skipif(not has_clang(), reason="no clang with an AMDGPU backend: pip install ziglang")


@pytest.mark.parametrize("batch", thorough_but(range(BATCHES), 0))
def test_random_schedules_of_every_operator_are_right(batch: int) -> None:
    """Every operator once with any tiles and knobs over all batches."""
    rng = np.random.default_rng([21, batch])
    check([generate(op, random_schedule(op, rng, MACHINE), HW) for op in OPERATORS[batch::BATCHES]], rng)


@pytest.mark.thorough
def test_random_legal_schedules_are_right() -> None:
    """Walks of the construction graph; shared memory is at most what legality counted."""
    rng = np.random.default_rng(22)
    check([legal_kernel(OPERATORS[int(i)], MACHINE, rng) for i in rng.permutation(len(OPERATORS))[:10]], rng)


@pytest.mark.thorough
@pytest.mark.as_shipped
def test_schedules_of_space_gensor_are_right() -> None:
    op = operators.gemm(48, 40, 24)
    graph, rng = ConstructionGraph(op, HW, "gensor"), np.random.default_rng(23)
    schedules = [graph.random_schedule(rng) for _ in range(3)]
    assert [m.status for m in get_backend("emulated", HW).measure(op, schedules, HW)] == [Status.OK] * 3


def reduction(threads: int) -> Kernel:
    """Rows of 300 summed by so many threads each, two rows a block."""
    op = operators.gemv(6, 300)
    return generate(op, make_schedule(op, [2, 1], [4, 256], reduce_threads=threads), HW)


@pytest.mark.thorough
def test_threads_of_a_wave_meet_by_shuffles_alone() -> None:
    """Up to 64 threads need no shared memory, where a warp of 32 does; more meet once a wave."""
    kernels = [reduction(threads) for threads in (2, 32, 64, 128, 256)]
    check(kernels, np.random.default_rng(3))
    assert all("__shfl_down(" in kernel.source and "__shfl_down_sync" not in kernel.source for kernel in kernels)
    assert ["warp_results" in kernel.source for kernel in kernels] == [False, False, False, True, True]
    op = operators.gemv(6, 300)
    schedule = make_schedule(op, [2, 1], [4, 256], reduce_threads=64)
    assert "warp_results" in make_kernel(op, schedule).source
    ints = ConstructionGraph(op, HW, "extended").tables.ints
    assert shared_bytes_of(plain(schedule.row), ints) == max(launch.shared_bytes for launch in reduction(64).launches)


def test_a_wave_in_the_emulator_has_64_lanes() -> None:
    """The same text with warps of 32 reads lanes that there are not."""
    kernel = reduction(64)
    assert targets.get("hip").warp == HW.warp == 64
    assert targets.get("cuda").warp == hardware.get("h200").warp == 32
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(targets.get("hip")), "warp", 32)
        with pytest.raises(EmulatorError, match="a shuffle reads a lane that the mask does not name"):
            check([kernel], np.random.default_rng(3))


@pytest.mark.parametrize("dtype", thorough_but(["float16", "bfloat16", "int8", "float32"], "bfloat16"))
def test_every_data_type_is_right(dtype: str) -> None:
    op = operators.gemm(24, 20, 36, dtype=dtype).with_epilogue("bias", "relu")
    graph, rng = ConstructionGraph(op, HW, "extended"), np.random.default_rng(5)
    (found,) = get_backend("emulated", HW).measure(op, [graph.random_schedule(rng)], HW)
    assert found.status is Status.OK, found.error


def test_what_the_gpu_has_not_is_masked() -> None:
    """No matrix cores, tensor maps, clusters, asynchronous copies: knobs keep their first value, and stages stop at two."""
    ints = ConstructionGraph(operators.gemm(512, 512, 512, dtype="float16"), HW, "extended").tables.ints
    usable = {
        name: [v for i, v in enumerate(KNOBS[KNOB_INDEX[name]].values) if ints[KNOB_BITS + KNOB_INDEX[name]] >> i & 1]
        for name in ("tensor_core", "persistent", "cluster", "stages")
    }
    assert usable == {"tensor_core": [0], "persistent": [0], "cluster": [1], "stages": [1, 2]}
    op = operators.gemm(64, 64, 64)
    schedule = make_schedule(op, [4, 4, 1], [32, 32, 16], stages=3)
    with pytest.raises(ValueError, match=r"knob stages=3: HIP code takes \(1, 2\)"):
        generate(op, schedule, HW)


def test_the_second_launch_bound_counts_waves_of_a_simd() -> None:
    """HIP's counts waves on one of four SIMDs, where CUDA's counts blocks."""
    assert [HIP.launch_bounds(threads, 64, 6) for threads in (64, 100, 128, 256)] == ["64, 1", "100, 3", "128, 3", "256, 6"]
    assert HIP.launch_bounds(64, 64, 3) == HIP.launch_bounds(64, 64) == "64"
    assert CUDA.launch_bounds(128, 32, 6) == "128, 6"
    op = operators.gemm(512, 512, 512)
    program = lower(op, make_schedule(op, [8, 8, 1], [64, 128, 8], vector=4), HW)
    waves = make_plan(program, HIP).resident * 2 // 4
    assert f"__launch_bounds__(128, {waves})" in generate_simt(program, HIP).source


@pytest.mark.thorough
@needs_clang
def test_clang_compiles_it_for_the_gpu() -> None:
    """Machine code of gfx942 with waves of 64, for kernels with and without shuffles, halves and functions."""
    rng = np.random.default_rng(9)
    halves = operators.gemm(24, 20, 36, dtype="bfloat16").with_epilogue("gelu")
    kernels = [reduction(128), legal_kernel(OPERATORS[4], MACHINE, rng)]
    kernels += [legal_kernel(OPERATORS[10], MACHINE, rng)]
    kernels += [generate(halves, ConstructionGraph(halves, HW).random_schedule(rng), HW)]
    for kernel in kernels:
        made = compile_hip(kernel)
        assert made.wave == 64 and 0 < made.vector_registers <= 512 and made.shared_bytes == 0
        assert f"amdgcn-amd-amdhsa--{HW.arch}" in made.assembly and f".globl\t{kernel.main.entry}\n" in made.assembly
    assert "s_barrier" in compile_hip(kernels[0]).assembly and "ds_bpermute" in compile_hip(kernels[0]).assembly


@needs_clang
def test_what_clang_refuses_is_an_error_with_its_words() -> None:
    with pytest.raises(HipCompileError, match="unknown type name 'nonsense'"):
        compile_hip(replace(reduction(2), source="nonsense f();"))
    with pytest.raises(ValueError, match="expected a kernel in language 'hip', got one in 'cuda'"):
        compile_hip(replace(reduction(2), language="cuda"))


@pytest.mark.thorough
def test_nothing_times_or_calls_it_and_errors_say_what_works() -> None:
    op = operators.gemm(48, 40, 24)
    schedule = ConstructionGraph(op, HW).random_schedule(np.random.default_rng(0))
    with pytest.raises(ValueError, match="mi300x cannot be timed here: .*hip kernels.*analytic, recorded or emulated"):
        get_backend("auto", HW)
    for name in ("cpu", "cuda"):
        with pytest.raises(ValueError, match=f"'{name}' cannot run mi300x.*hip"):
            get_backend(name, HW)
    kernel = build(op, schedule, HW)
    with pytest.raises(HipUnavailableError, match="docs/hip.md.*analytic and emulated"):
        kernel(np.zeros((48, 24), np.float32), np.zeros((24, 40), np.float32))
    assert get_backend("analytic", HW).measure(op, [schedule], HW)[0].seconds > 0
