"""A C kernel of several outputs in this process."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.arrays import Signature, in_library_of
from gensor_gym.codegen.runtime.memory import address_of, aligned, workspace_of
from gensor_gym.codegen.runtime.threads import GgCall, GgRuntime, caller, pointers


class NativeOutputs:
    """A kernel whose call gives a tuple. Safe to call from several threads: each call has workspace and outputs of its own."""

    def __init__(self, kernel: Kernel, entry: Any, team: GgRuntime) -> None:
        """`entry` is the kernel's, loaded."""
        self.kernel, self._entry, self._team = kernel, entry, team
        self.signature = Signature(kernel.operator)

    def __call__(self, *inputs: Any, out: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
        """The outputs for inputs of NumPy or DLPack, in the library of the first; or `out`, the caller's own, filled in.

        ValueError names what has the wrong number, shape, type or device, and what of `out` overlaps an input or another output.
        """
        arrays = self.signature.inputs(inputs)
        call = self._bound(arrays, inputs, out)
        return call()

    def bind(self, *arrays: Any) -> BoundOutputs:
        """A call of these inputs, and of the outputs where they are given after them, that checks nothing any more.

        ValueError as for a call, and for an input that would have to be copied.
        """
        count = len(self.kernel.operator.inputs)
        given, own = arrays[:count], arrays[count:]
        return self._bound(self.signature.inputs(given, copy=False), given, tuple(own) or None)

    def _bound(self, arrays: list[np.ndarray], given: Any, out: tuple[Any, ...] | None) -> BoundOutputs:
        """The call of checked inputs."""
        if out is None:
            outputs = [aligned(shape, dtype) for shape, dtype in self.signature.outputs]
            out = tuple(in_library_of(given[0], output) for output in outputs)
        else:
            outputs = self.signature.several(out, arrays)
        return BoundOutputs(self._entry, arrays, outputs, self.kernel.workspace_bytes, self._team, out)


class BoundOutputs:
    """A kernel with its arrays: a call reads what they hold at that time. From one thread at a time."""

    def __init__(
        self, entry: Any, inputs: list[np.ndarray], outputs: list[np.ndarray], workspace_bytes: int, team: GgRuntime, out: Any
    ) -> None:
        """`out` is what a call returns, on the memory of `outputs`."""
        self.out = out
        workspace, given, written = workspace_of(workspace_bytes), pointers(inputs), pointers(outputs)
        self._kept = (inputs, outputs, workspace, given, written, team)
        where = ctypes.addressof(given), ctypes.addressof(written), address_of(workspace), ctypes.addressof(team)
        self._compute, self._call = caller(), ctypes.byref(GgCall(ctypes.cast(entry, ctypes.c_void_p), *where))

    def __call__(self) -> Any:
        """Compute, and return the outputs."""
        self._compute(self._call)
        return self.out
