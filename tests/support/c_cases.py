"""Random operators and structurally valid CPU programs for the tests of C code, and their error bound."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.codegen import generate
from gensor_gym.codegen.c.codegen import generate_c
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import Program
from gensor_gym.codegen.runtime.c import load
from gensor_gym.codegen.runtime.compile import compile_c
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.structure import vector_axis
from gensor_gym.hardware.cpuinfo import cpu_info
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.answers.expectation import error_bound
from gensor_gym.operators.inputs import decode
from gensor_gym.operators.types import Operator

EXTENTS = (1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 48, 64, 70, 97)
DEFAULTS = {knob.name: knob.default for knob in KNOBS}
CPU_KNOBS = {knob.name: knob.available for knob in KNOBS if knob.kind != "gpu"}
ACCUMULATORS = 32
DTYPES = ("float32",) * 4 + ("int8",)
HALVES = ("bfloat16", "float16")
ARCHES = {"x86-64": "sse2", "haswell": "avx2", "skylake-avx512": "avx512bw", "native": ""}
"""What code is compiled for -> the flag that this machine must have to run it."""


def needs(arch: str) -> None:
    """Skip the test where this machine does not run the architecture's code."""
    if ARCHES[arch] not in cpu_info().flags | {""}:
        pytest.skip(f"this CPU does not run code for {arch}")


def machine(lanes: int = 16, arch: str = "native") -> Hardware:
    """A two-core CPU that the code is compiled for on this machine."""
    return dataclasses.replace(hardware.get("cascade_lake"), arch=arch, lanes=lanes, units=2)


def program(op: Operator, *tiles: tuple[int, ...], hw: Hardware | None = None, **knobs: int) -> Program:
    """A program from tiles by operator axis (register, L1, task) and the knobs that are not at their default."""
    assert len(tiles) == 3 and all(len(level) == len(op.axes) for level in tiles)
    return Program(op, hw or machine(), tiles, (1,) * len(op.axes), tuple((DEFAULTS | knobs).items()))


def random_program(seed: int, hw: Hardware | None = None, dtypes: Sequence[str] = DTYPES) -> Program:
    """The program of a seed: any operator, awkward extents, any tiles that are multiples of one another, any knobs."""
    rng = random.Random(seed)
    op = random_operator(rng, dtypes)
    knobs = {name: rng.choice(values) for name, values in CPU_KNOBS.items() if name != "convolution"}
    knobs["thread_split"] = rng.choice((1, 1, 1, 2, 4, 8))
    knobs["convolution"] = rng.choice((0, 1, 2)) if op.name == "conv2d" else 0
    hw = hw or machine(rng.choice((16, 16, 8, 4)))
    tiles = random_tiles(rng, op, vector_axis(op, knobs["convolution"]), hw.lanes)
    return program(op, *tiles, hw=hw, **knobs)


def legal_kernel(seed: int, hw: Hardware | None = None, dtypes: Sequence[str] = DTYPES) -> Kernel:
    """A random operator with a random legal schedule of the extended space, by default for one of three vector widths."""
    rng = random.Random(seed)
    op, hw = random_operator(rng, dtypes), hw or machine(rng.choice((16, 16, 8, 4)))
    graph = ConstructionGraph(op, hw, space="extended")
    schedule = graph.random_schedule(np.random.default_rng(seed))
    assert graph.is_legal(schedule)
    return generate(op, schedule, hw)


def random_operator(rng: random.Random, dtypes: Sequence[str] = DTYPES) -> Operator:
    """An operator of any kind with small, mostly awkward extents, half of the time with an epilogue."""
    dtype = rng.choice(dtypes)
    op = rng.choice((_matrix, _matrix, _window, _window, _elementwise))(rng, dtype)
    if rng.random() < 0.5:
        names = ["bias", "relu", "residual"] + (["gelu", "scale"] if op.dtype != "int8" else [])
        op = op.with_epilogue(*(rng.choice(names) for _ in range(rng.randint(1, 3))))
    return op


def _matrix(rng: random.Random, dtype: str) -> Operator:
    m, n, k = (rng.choice(EXTENTS) for _ in range(3))
    long = rng.choice((1, 5, 16, 100, 257, 1000))
    kind = rng.choice(("gemm", "batched_gemm", "gemv", "reduce_sum"))
    if kind == "gemm":
        return operators.gemm(m, n, k, dtype=dtype)
    if kind == "batched_gemm":
        return operators.batched_gemm(rng.choice((1, 2, 3)), m, n, k, dtype=dtype)
    return (operators.gemv if kind == "gemv" else operators.reduce_sum)(m, long, dtype=dtype)


def _window(rng: random.Random, dtype: str) -> Operator:
    r, s = rng.choice((1, 2, 3, 5)), rng.choice((1, 2, 3, 7))
    stride = (rng.choice((1, 2, 3)), rng.choice((1, 1, 2, 3)))
    padding = (rng.randint(0, r // 2), rng.randint(0, s // 2))
    h, w = r + rng.choice((0, 1, 4, 9)), s + rng.choice((0, 1, 5, 13, 31))
    n, c = rng.choice((1, 2)), rng.choice((1, 2, 3, 8, 17))
    size = dict(n=n, h=h, w=w, r=r, s=s, stride=stride, padding=padding)
    kind = rng.choice(("conv2d", "conv2d", "depthwise_conv2d", "avg_pool2d", "max_pool2d"))
    if kind == "conv2d":
        groups, dilation = rng.choice((1, 1, 2)), rng.choice((1, 2))
        if h + 2 * padding[0] <= 2 * (r - 1) or w + 2 * padding[1] <= 2 * (s - 1):
            dilation = 1
        k = groups * rng.choice((1, 3, 8, 16, 20))
        return operators.conv2d(c=c * groups, k=k, dilation=dilation, groups=groups, dtype=dtype, **size)
    dtype = "float32" if kind == "avg_pool2d" and dtype == "int8" else dtype
    return getattr(operators, kind)(c=c, dtype=dtype, **size)


def _elementwise(rng: random.Random, dtype: str) -> Operator:
    names = ["relu", "copy", "add", "mul"] + (["gelu", "sigmoid", "tanh", "exp"] if dtype != "int8" else [])
    shape = [rng.choice(EXTENTS[:12]) for _ in range(rng.randint(1, 3))]
    return operators.elementwise(rng.choice(names), *shape, dtype=dtype)


def random_tiles(rng: random.Random, op: Operator, vector: int, lanes: int) -> tuple[tuple[int, ...], ...]:
    """Tiles of three levels whose register tile fits the registers; they may overhang the extents."""
    while True:
        register = [_register(rng, op, a, a == vector) for a in range(len(op.axes))]
        rows = math.prod(register[a] for a in op.spatial if a != vector)
        if rows * (register[vector] // lanes + (register[vector] % lanes).bit_count()) <= ACCUMULATORS:
            break
    l1 = [tile * rng.choice((1, 1, 2, 3, 4)) for tile in register]
    return tuple(register), tuple(l1), tuple(tile * rng.choice((1, 1, 2, 4, 8)) for tile in l1)


def _register(rng: random.Random, op: Operator, axis: int, vector: bool) -> int:
    if vector:
        return rng.choice((1, 2, 3, 4, 7, 8, 16, 16, 16, 24, 32, 48, 64))
    wanted = rng.choice((1, 1, 2, 3, 4) if axis in op.reduce else (1, 1, 1, 2, 3, 4, 6, 8, 14))
    return min(wanted, op.extents[axis] + rng.choice((0, 0, 0, 3)))


def inputs_of(op: Operator, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Random inputs."""
    return operators.random_inputs(op, np.random.default_rng(seed))


def worst_error(op: Operator, inputs: tuple[np.ndarray, ...], output: np.ndarray) -> float:
    """Largest error over what float32 arithmetic may make of it; at most 1 for a right answer, infinite for a NaN.

    The bound is the classic one: (length of the reduction + a few) roundings of the sum of absolute values, which the
    operator itself computes from absolute inputs. int8 must be exact. 16-bit floats have the bound that measurements have.
    """
    expected = op.reference(*inputs)
    output = decode(output, op.output.dtype)
    if not np.isfinite(output).all():
        return math.inf
    error = np.abs(output.astype(np.float64) - expected)
    if op.output.dtype == "int32":
        return math.inf if error.any() else 0.0
    if op.dtype in HALVES or op.dtype == "int8":
        bound = error_bound(op, inputs, expected)
        if op.output.dtype == "int8":
            return math.inf if (error > bound).any() or bound.mean() > 0.1 else 0.0
        return float((error / error_bound(op, inputs, expected)).max(initial=0.0))
    size = op.reference(*(np.abs(array) for array in inputs))
    length = math.prod(op.extents[a] for a in op.reduce)
    return float((error / (1.2e-7 * (length + 12) * (np.abs(size) + 1e-2))).max(initial=0.0))


def compiled(made: Iterable[Program | Kernel]) -> list[Kernel]:
    """Kernels, two compiled at a time."""
    kernels = [one if isinstance(one, Kernel) else generate_c(one) for one in made]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compile_c, kernels))
    return kernels


def check(made: Iterable[Program | Kernel], *threads: int) -> None:
    """Kernels give what the reference does, on each of these numbers of threads."""
    for kernel in compiled(made):
        op, inputs = kernel.operator, inputs_of(kernel.operator)
        for count in threads:
            error = worst_error(op, inputs, load(kernel, count)(*inputs))
            assert error <= 1.0, f"{op} on {count} threads: {error} times the bound\n{kernel.source}"
