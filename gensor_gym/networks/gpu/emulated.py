"""A network whose kernels run in the emulator, in order, in the memory that they would share on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.arrays import Signature, in_library_of
from gensor_gym.measure.emulator.emulator import EmulatedKernels
from gensor_gym.networks.gpu.memory import Memory, Tasks
from gensor_gym.networks.plan import Plan

POISON = 0xFF
"""Byte that fills memory before a kernel writes to it. Floats of such bytes are NaN."""


class EmulatedNetwork:
    """A network whose kernels run in the emulator, called with host arrays. It is slow: use small networks."""

    def __init__(self, plan: Plan, kernels: Sequence[Kernel], mode: str = "whole", sanitize: bool = True) -> None:
        """Compile the kernels. EmulatorError if that fails. `sanitize` checks addresses and undefined behaviour.

        `mode` is one of `networks.arena.MODES`.
        """
        self.tasks = Tasks(plan, kernels, mode)
        self.layout = self.tasks.layout
        self.signature = Signature(self.tasks.called)
        distinct = {kernel.digest: kernel for kernel in kernels}
        self._numbers = {digest: number for number, digest in enumerate(distinct)}
        self._kernels = EmulatedKernels(tuple(distinct.values()), sanitize) if distinct else None
        self.constants: dict[str, np.ndarray] = {}
        """Empty: this object keeps no constants, and the network's arrays are used."""

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """Run the network. Return an array of the first input's library, or a tuple of several.

        With `out`, write to it and return it. ValueError for arrays of wrong number, shape, type or device, and for ids outside
        their table; EmulatorError with a sanitizer's report.
        """
        self.tasks.called.check_ids(inputs)
        given = self.signature.inputs(inputs)
        outputs = [np.empty(shape, dtype) for shape, dtype in self.signature.made]
        memory = Memory(given, outputs, np.zeros(self.layout.workspace_bytes, np.uint8), self.tasks.fixed())
        for task in self.tasks.listed:
            assert self._kernels is not None, "compiled, since there is a task"
            read, written, workspace = task.arrays(memory)
            _poison(written, workspace[task.kernel.cleared_bytes :])  # its memory must not overlap data to be read
            made = self._kernels.run(self._numbers[task.kernel.digest], read)
            for array, result in zip(written, made if len(written) > 1 else [made], strict=True):
                array[...] = result
        if out is None:
            found = tuple(outputs) if len(outputs) > 1 else outputs[0]
            return in_library_of(inputs[0], found) if inputs else found
        for array, result in zip(self.signature.filled(out, given), outputs, strict=True):
            array[...] = result
        return out


def _poison(written: Sequence[np.ndarray], workspace: np.ndarray) -> None:
    """Fill a kernel's outputs and workspace with NaN bytes before it runs, so that inputs in the same memory are noticed."""
    for array in (*written, workspace):
        array.reshape(-1).view(np.uint8)[...] = POISON
