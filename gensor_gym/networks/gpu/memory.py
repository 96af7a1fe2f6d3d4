"""Memory of a network on a GPU: views of a call's arrays and of two blocks of bytes, at the positions of a `Layout`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.networks.layout import Base, Layout, Place, layout_of
from gensor_gym.networks.plan import Plan
from gensor_gym.networks.steps import Step
from gensor_gym.operators.types import ARRAY_DTYPE, Tensor


@dataclass(frozen=True)
class Memory:
    """Arrays of a network's call, of NumPy or CuPy."""

    inputs: Sequence[Any]
    """Dense arrays of the network's inputs."""
    outputs: Sequence[Any]
    """Dense arrays of the network's outputs."""
    workspace: Any
    """Values between kernels, and kernels' workspaces: uint8 [`Layout.workspace_bytes`]."""
    fixed: Any
    """Constants, and workspaces that keep their content between calls: uint8 [`Layout.fixed_bytes`]."""

    def bytes_at(self, place: Place, nbytes: int) -> Any:
        """Return a view of the bytes at a position, uint8 [nbytes]."""
        if place.base in (Base.INPUT, Base.OUTPUT):
            whole = (self.inputs if place.base is Base.INPUT else self.outputs)[place.at].reshape(-1).view(np.uint8)
            return whole[place.before : place.before + nbytes]
        start = place.at + place.before
        return (self.workspace if place.base is Base.WORKSPACE else self.fixed)[start : start + nbytes]

    def array_at(self, place: Place, tensor: Tensor) -> Any:
        """Return a view of the array at a position, with the tensor's shape and type."""
        dtype = np.dtype(ARRAY_DTYPE[tensor.dtype])
        return self.bytes_at(place, math.prod(tensor.shape) * dtype.itemsize).view(dtype).reshape(tensor.shape)


@dataclass(frozen=True)
class Task:
    """A kernel with the positions of its arrays in memory."""

    kernel: Kernel
    reads: tuple[Place, ...]
    writes: tuple[Place, ...]
    workspace: Place

    def arrays(self, memory: Memory) -> tuple[list[Any], list[Any], Any]:
        """Return (inputs, outputs, workspace) of the kernel as views of the network's memory."""
        op = self.kernel.operator
        inputs = [memory.array_at(place, tensor) for place, tensor in zip(self.reads, op.inputs, strict=True)]
        outputs = [memory.array_at(place, tensor) for place, tensor in zip(self.writes, op.outputs, strict=True)]
        return inputs, outputs, memory.bytes_at(self.workspace, self.kernel.workspace_bytes)


class Tasks:
    """The kernels of a plan in order, with the layout of their arrays and the constants that they read."""

    def __init__(self, plan: Plan, kernels: Sequence[Kernel], mode: str) -> None:
        """Lay out the arrays of all kernels. `mode` is one of `networks.arena.MODES`.

        ValueError if several pieces share a loop, which is not possible on a GPU.
        """
        if any(piece.follows for piece in plan.pieces):
            raise ValueError(f"{plan.network}: a plan with several pieces in one loop, expected a loop for each on a GPU")
        self.called = plan.network.called
        self.layout: Layout = layout_of(plan, kernels, mode)
        steps = zip(plan.steps, kernels, self.layout.workspaces, strict=True)
        self.listed = tuple(self._task(step, kernel, workspace) for step, kernel, workspace in steps)
        self.constants = {name: plan.network.constants[name] for name in self.layout.constants}

    def _task(self, step: Step, kernel: Kernel, workspace: Place) -> Task:
        values = self.layout.values
        return Task(kernel, tuple(values[name] for name in step.reads), tuple(values[name] for name in step.writes), workspace)

    def fixed(self) -> np.ndarray:
        """Make the fixed memory, uint8 [`Layout.fixed_bytes`]: the constants at their positions, zeros elsewhere."""
        found = np.zeros(self.layout.fixed_bytes, np.uint8)
        for name, array in self.constants.items():
            start = self.layout.values[name].at
            found[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return found
