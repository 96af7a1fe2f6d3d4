"""A C kernel in this process, with little between the call and the loop."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.arrays import Signature, in_library_of
from gensor_gym.codegen.runtime.load import load_entry
from gensor_gym.codegen.runtime.outputs import Outputs, aligned
from gensor_gym.codegen.runtime.threads import pointers, runtime


class NativeKernel:
    """A kernel on so many threads of this machine. Safe to call from several threads: each has workspace and outputs of its own.

    A second thread that calls while the pool of threads is busy computes alone.
    """

    def __init__(self, kernel: Kernel, threads: int) -> None:
        """Compile, where that was not done, and load; CompileError with the compiler's message."""
        self.kernel = kernel
        self.signature = Signature(kernel.operator)
        self._entry, self._team = load_entry(kernel), ctypes.byref(runtime(threads))
        self._outputs = Outputs(self.signature.shape, self.signature.dtype)
        self._workspaces = threading.local()
        self._given = ctypes.c_void_p * len(kernel.operator.inputs)

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """The output for the operator's inputs, in the library that the first of them is of.

        Inputs are NumPy arrays or whatever speaks DLPack on the host; an input that is not dense or not aligned is copied
        (`CopyWarning`). `out` is the caller's own output, which is then returned; else the output is an array that nothing
        else refers to, whose memory is used again when nothing refers to it any more.

        ValueError names what has the wrong number, shape, type or device, and an `out` that overlaps an input.
        """
        arrays = self.signature.inputs(inputs)
        given = self._given(*[array.ctypes.data for array in arrays])
        if out is not None:
            self._entry(given, self.signature.output(out, arrays).ctypes.data, self._workspace(), self._team)
            return out
        output, address = self._outputs.take()
        self._entry(given, address, self._workspace(), self._team)
        first = inputs[0]
        return output if type(first) is np.ndarray else in_library_of(first, output)

    def bind(self, *arrays: Any) -> Bound:
        """A call of these inputs, and of the output where one array more is given, that checks nothing any more.

        ValueError as for a call, and for an input that would have to be copied.
        """
        count = len(self.kernel.operator.inputs)
        given, own = arrays[:count], arrays[count:]
        inputs = self.signature.inputs(given, copy=False)
        if len(own) > 1:
            raise ValueError(f"{self.kernel.operator}: {len(arrays)} arrays given, expected {count} and at most one output")
        output = self.signature.output(own[0], inputs) if own else aligned(self.signature.shape, self.signature.dtype)
        out = own[0] if own else in_library_of(given[0], output)
        return Bound(self._entry, inputs, output, self.kernel.workspace_bytes, self._team, out)

    def _workspace(self) -> int:
        """Address of the calling thread's workspace."""
        try:
            return self._workspaces.address
        except AttributeError:
            self._workspaces.array = aligned((self.kernel.workspace_bytes,), np.dtype(np.uint8))
            self._workspaces.address = self._workspaces.array.ctypes.data
            return self._workspaces.address


class Bound:
    """A kernel with its arrays: a call reads what they hold at that time. From one thread at a time."""

    def __init__(
        self, entry: Any, inputs: Sequence[np.ndarray], output: np.ndarray, workspace_bytes: int, team: Any, out: Any
    ) -> None:
        """`out` is what a call returns, on the memory of `output`."""
        self.out = out
        self._entry, self._team = entry, team
        self._kept = (inputs, output, aligned((workspace_bytes,), np.dtype(np.uint8)))
        self._addresses = (pointers(inputs), output.ctypes.data, self._kept[2].ctypes.data)

    def __call__(self) -> Any:
        """Compute, and return the output."""
        inputs, output, workspace = self._addresses
        self._entry(inputs, output, workspace, self._team)
        return self.out
