"""Generated C: right for random schedules, every knob and every width, and refused where it should be."""

from __future__ import annotations

import ctypes
import dataclasses

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.codegen.c.codegen import generate_c
from gensor_gym.codegen.runtime.c import load, load_entry
from gensor_gym.codegen.runtime.compile import CompileError, compile_c
from gensor_gym.codegen.runtime.memory import aligned
from gensor_gym.codegen.runtime.threads import load_runtime, pointers, runtime, time_calls
from gensor_gym.operators.types import Operator
from tests.support.c_cases import CPU_KNOBS, check, compiled, inputs_of, machine, program, random_program, worst_error

GEMM = operators.gemm(m=61, n=83, k=70)
GEMM_TILES = ((6, 32, 1), (12, 32, 16), (24, 64, 32))
CONV = operators.conv2d(n=2, c=5, h=11, w=20, k=19, r=3, s=3, padding=1)
CONV_TILES = ((1, 4, 1, 16, 1, 1, 3), (1, 8, 4, 32, 2, 3, 3), (1, 16, 8, 32, 4, 3, 3))


def test_random_schedules() -> None:
    check(map(random_program, range(60)), 1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_random_schedules(block: int) -> None:
    check(map(random_program, range(1000 + 100 * block, 1100 + 100 * block)), 1, 2)


@pytest.mark.as_shipped
@pytest.mark.parametrize(
    ("op", "tiles"),
    [pytest.param(GEMM, GEMM_TILES, id="gemm"), pytest.param(CONV, CONV_TILES, id="conv2d", marks=pytest.mark.thorough)],
)
def test_every_value_of_every_knob(op: Operator, tiles: tuple[tuple[int, ...], ...]) -> None:
    op = op.with_epilogue("bias", "gelu")
    programs = [program(op, *tiles, **{name: value}) for name, values in CPU_KNOBS.items() for value in values]
    kernels = compiled([p for p in programs if op.name == "conv2d" or p.knob("convolution") == 0])
    assert len({kernel.digest for kernel in kernels}) >= 9
    check(kernels, 2)


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_one_schedule_for_every_vector_width(lanes: int) -> None:
    check((program(op, *tiles, hw=machine(lanes), pack_a=1) for op, tiles in ((GEMM, GEMM_TILES), (CONV, CONV_TILES))), 2)


def test_extreme_tiles() -> None:
    ones, whole = (1, 1, 1), (64, 128, 128)
    programs = [program(GEMM, ones, ones, ones), program(GEMM, (4, 64, 1), whole, whole, pack_a=1, pack_b=1)]
    one = operators.gemm(m=1, n=1, k=1)
    programs += [program(one, ones, ones, ones), program(one, (4, 64, 2), (8, 64, 4), (8, 128, 8), thread_split=8)]
    check(programs, 2)


def test_epilogues_in_their_order() -> None:
    for names in (("bias", "relu"), ("relu", "bias"), ("scale", "residual", "gelu"), ("residual", "residual", "bias")):
        op = GEMM.with_epilogue(*names)
        check([program(op, *GEMM_TILES), program(op, *GEMM_TILES, thread_split=4)], 2)


def test_functions_over_their_whole_range() -> None:
    x = np.concatenate([np.linspace(-130, 87, 4001), np.linspace(-1e-3, 1e-3, 101), [-1e30, 0.0]]).astype(np.float32)
    for name in ("gelu", "sigmoid", "tanh", "exp", "relu"):
        op = operators.elementwise(name, x.size)
        y = load(compiled([program(op, (16,), (64,), (1024,))])[0])(x)
        np.testing.assert_allclose(y, op.reference(x), rtol=6e-7, atol=6e-7, err_msg=name)


@pytest.mark.as_shipped
def test_tanh_reaches_one() -> None:
    """GELU multiplies 1 + tanh(x) by numbers of any size."""
    x = np.append(np.linspace(9.1, 99, 31), 1e30).astype(np.float32)
    x = np.concatenate([x, -x])
    op = operators.elementwise("tanh", x.size)
    assert (load(compiled([program(op, (16,), (64,), (64,))])[0])(x) == np.sign(x)).all()


def test_an_interior_tile_has_no_guards_and_an_exact_one_no_edge_variant() -> None:
    exact = generate_c(program(operators.gemm(m=12, n=64, k=32), (6, 32, 1), (12, 32, 32), (12, 64, 32))).source
    assert "register_tile_edge" not in exact and "masked" not in exact and "first" not in exact
    ragged = generate_c(program(GEMM, *GEMM_TILES)).source
    interior = ragged[ragged.index("static void register_tile(") : ragged.index("static void register_tile_edge(")]
    assert "masked" not in interior and "if (m" not in interior


def test_a_schedule_that_differs_in_unused_knobs_is_the_same_kernel() -> None:
    op = operators.elementwise("relu", 100)
    a, b = (generate_c(program(op, (16,), (32,), (64,), prefetch=value)) for value in (0, 8))
    assert a.digest == b.digest


def test_split_reduction_gives_the_same_bits_on_any_number_of_threads() -> None:
    op = operators.gemv(m=33, k=5000)
    kernel = compiled([program(op, (4, 32), (4, 64), (8, 320), thread_split=8)])[0]
    inputs = inputs_of(op)
    outputs = [load(kernel, threads)(*inputs) for threads in (1, 2, 2, 3)]
    assert all(np.array_equal(outputs[0], output) for output in outputs[1:])


def test_workspace_is_not_assumed_clear_or_aligned() -> None:
    op = operators.gemm(m=40, n=50, k=60)
    kernel = compiled([program(op, (6, 16, 1), (12, 32, 16), (24, 32, 32), pack_a=1, pack_b=1, thread_split=2)])[0]
    inputs, entry, team = inputs_of(op), load_entry(kernel), runtime(2)
    output = np.full(op.output.shape, np.nan, np.float32)
    raw = np.full(kernel.workspace_bytes + 4, 0xFF, np.uint8)
    entry(pointers(inputs), output.ctypes.data, raw[4:].ctypes.data, ctypes.byref(team))
    assert worst_error(op, inputs, output) <= 1.0


def test_other_dtypes_and_other_hardware_are_refused() -> None:
    with pytest.raises(ValueError, match="tf32"):
        generate_c(program(operators.gemm(m=4, n=4, k=4, dtype="tf32"), (1, 1, 1), (1, 1, 1), (1, 1, 1)))
    gpu = dataclasses.replace(machine(), kind="gpu")
    with pytest.raises(ValueError, match="kind 'cpu'"):
        generate_c(program(GEMM, *GEMM_TILES, hw=gpu))


def test_a_source_that_does_not_compile_is_a_compile_error() -> None:
    kernel = dataclasses.replace(generate_c(program(GEMM, *GEMM_TILES)), source="this is not C")
    with pytest.raises(CompileError, match="error"):
        compile_c(kernel)


def test_pool_runs_every_index_once_whatever_the_count() -> None:
    library, team = load_runtime(), runtime(3)
    assert library is load_runtime()
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_long, ctypes.c_int)
    parallel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, prototype, ctypes.c_void_p, ctypes.c_long)(team.parallel)
    for count in (0, 1, 2, 3, 100, 1001):
        seen: list[tuple[int, int]] = []
        task = prototype(lambda _, index, thread, seen=seen: seen.append((index, thread)))
        parallel(ctypes.addressof(team), task, None, count)
        assert sorted(index for index, _ in seen) == list(range(count))
        assert {thread for _, thread in seen} <= {0, 1, 2}


def test_timing_counts_every_call() -> None:
    kernel = compiled([program(GEMM, *GEMM_TILES)])[0]
    inputs, output = inputs_of(GEMM), aligned(GEMM.output.shape, np.dtype(np.float32))
    workspace = aligned((kernel.workspace_bytes,), np.dtype(np.uint8))
    entry = load_entry(kernel)
    few, many = (min(time_calls(entry, inputs, output, workspace, 1, n) for _ in range(5)) for n in (10, 1000))
    assert many > 20 * few > 0
    assert worst_error(GEMM, inputs, output) <= 1.0
