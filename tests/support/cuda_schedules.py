"""Random structurally valid GPU schedules of small operators with awkward extents, for tests of generated CUDA code."""

from __future__ import annotations

import math

import numpy as np

from gensor_gym import hardware, operators
from gensor_gym.codegen.cuda.codegen import generate_cuda
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import lower
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.schedule import Schedule, make_row
from gensor_gym.graph.structure import has_async_copies
from gensor_gym.graph.tables.layout import MAX_AXES, slot_of
from gensor_gym.operators.types import Operator

MAX_THREADS = 256
MAX_REGISTER_TILE = 64

OPERATORS: tuple[Operator, ...] = (
    operators.gemm(16, 24, 20),
    operators.gemm(13, 11, 7),
    operators.gemm(1, 12, 9),
    operators.gemm(12, 8, 8, dtype="int8").with_epilogue("bias", "relu", "residual"),
    operators.gemm(9, 20, 12).with_epilogue("bias", "gelu", "residual"),
    operators.gemm(8, 16, 5).with_epilogue("scale", "relu"),
    operators.batched_gemm(3, 5, 8, 12),
    operators.gemv(12, 36),
    operators.gemv(7, 29).with_epilogue("bias", "relu"),
    operators.conv2d(1, 3, 8, 8, 4, 3, 3, padding=1),
    operators.conv2d(2, 4, 7, 9, 6, 3, 2, stride=2, padding=1).with_epilogue("bias", "relu"),
    operators.conv2d(1, 4, 8, 7, 4, 3, 3, dilation=2, groups=2, padding=2).with_epilogue("scale", "residual"),
    operators.conv2d(1, 5, 4, 4, 6, 1, 1),
    operators.conv2d(1, 4, 5, 6, 4, 2, 3, padding=1, dtype="int8"),
    operators.depthwise_conv2d(1, 3, 9, 8, 3, 3, 2, 1),
    operators.avg_pool2d(1, 3, 8, 8, 3, 3, 2, 1).with_epilogue("relu"),
    operators.avg_pool2d(1, 2, 8, 8, 2, 2, 2, 0),
    operators.max_pool2d(1, 3, 7, 8, 3, 3, 2, 1),
    operators.max_pool2d(1, 2, 6, 6, 3, 2, 1, 1, dtype="int8"),
    operators.reduce_sum(6, 40),
    operators.reduce_sum(5, 31).with_epilogue("scale"),
    operators.reduce_sum(3, 50, dtype="int8"),
    operators.elementwise("gelu", 5, 24),
    operators.elementwise("add", 7, 13).with_epilogue("bias", "residual"),
    operators.elementwise("sigmoid", 64),
    operators.elementwise("tanh", 3, 11),
    operators.elementwise("exp", 40),
    operators.elementwise("mul", 4, 6, dtype="int8"),
)


def make_schedule(
    op: Operator, register: list[int], block: list[int], vthread: list[int] | None = None, **knobs: int
) -> Schedule:
    """A schedule from tiles by the operator's axes."""
    tiles, virtual = [[1] * MAX_AXES for _ in range(2)], [1] * MAX_AXES
    for axis in range(len(op.axes)):
        slot = slot_of(axis, len(op.spatial))
        tiles[0][slot], tiles[1][slot] = register[axis], block[axis]
        virtual[slot] = vthread[axis] if vthread else 1
    return Schedule(make_row([tiles[0], tiles[1], tiles[1], tiles[1]], virtual, 1, knobs))


def random_schedule(op: Operator, rng: np.random.Generator, hw: str = "h200") -> Schedule:
    """Any tiles whose threads and registers an emulated block can hold; they often overhang. Any knobs of CUDA cores."""
    while True:
        register, block, virtual = [], [], []
        for axis in op.axes:
            inner = int(rng.choice([1, 1, 2, 3, 4, 4, 8]))
            outer = inner * int(rng.choice([1, 1, 2, 3, 4, 8]))
            if outer > 2 * axis.extent + 2:
                inner, outer = 1, int(rng.choice([1, axis.extent]))
            divisors = [d for d in range(1, inner + 1) if inner % d == 0]
            register.append(inner)
            block.append(outer)
            virtual.append(int(rng.choice(divisors)) if axis.kind == "spatial" else 1)
        knobs = {knob.name: int(rng.choice(knob.available)) for knob in KNOBS if knob.kind == "gpu"}
        knobs |= {"tensor_core": 0, "persistent": 0, "cluster": 1}  # of other families of kernels
        knobs["unroll"] = int(rng.choice([1, 2, 4, 8, 16]))
        if not has_async_copies(hardware.get(hw)):
            knobs["stages"] = min(knobs["stages"], 2)
        if rng.random() < 0.5:
            knobs["split_k"] = 1
        threads = math.prod(block[a] // register[a] for a in op.spatial) * knobs["reduce_threads"]
        if threads <= MAX_THREADS and math.prod(register[a] for a in op.spatial) <= MAX_REGISTER_TILE:
            return make_schedule(op, register, block, virtual, **knobs)


def make_kernel(op: Operator, schedule: Schedule, hw: str = "h200") -> Kernel:
    """The CUDA kernel of a schedule."""
    return generate_cuda(lower(op, schedule, hardware.get(hw)))


def random_inputs(op: Operator, rng: np.random.Generator) -> list[np.ndarray]:
    """Normal floats; small integers for integer tensors."""
    arrays = []
    for tensor in op.inputs:
        if tensor.dtype == "float32":
            arrays.append(rng.standard_normal(tensor.shape).astype(np.float32))
        else:
            arrays.append(rng.integers(-128, 128, tensor.shape).astype(tensor.dtype))
    return arrays
