"""Time of a kernel called from Python in this process, and the line of Python that calls it."""

from __future__ import annotations

import numpy as np

from agents.optimize import Result
from experiments.benches.kernel_sets.called import placed, seconds
from gensor_gym import operators
from gensor_gym.operators.computation import Computation
from gensor_gym.operators.inputs import ARRAY_OFFSET
from gensor_gym.operators.loops import Tensor

TURNS = 9
"""Number of timed turns, each of some tens of milliseconds."""


def called(result: Result, seed: int) -> list[float]:
    """Seconds per call of a kernel on this processor, with a fresh output at every call: one time for each turn."""
    drawn = operators.random_inputs(result.task.operator, np.random.default_rng(seed))
    inputs, kernel = [placed(array, ARRAY_OFFSET) for array in drawn], result.kernel
    return [seconds(lambda: kernel(*inputs)) for _ in range(TURNS)]


def call_of(op: Computation) -> str:
    """Python line that calls `kernel` with its inputs by name, and a comment with their shapes."""
    names = ", ".join(tensor.name for tensor in op.inputs)
    shapes = ", ".join(f"{tensor.name} {_shape(tensor)}" for tensor in op.inputs)
    given = ", ".join(tensor.name for tensor in op.outputs)
    return f"{given} = kernel({names})  # {shapes} -> {', '.join(map(_shape, op.outputs))}"


def _shape(tensor: Tensor) -> str:
    """Text such as float32[512, 384]."""
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"
