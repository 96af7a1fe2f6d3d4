"""Load a C kernel's shared library into this process, as a function of arrays with little overhead per call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.arrays import Signature, in_library_of
from gensor_gym.codegen.runtime.compile import compile_c
from gensor_gym.codegen.runtime.function import BuiltinKernel
from gensor_gym.codegen.runtime.memory import address_of, aligned, workspace_of
from gensor_gym.codegen.runtime.tensors import is_of_torch, know_torch
from gensor_gym.codegen.runtime.threads import GgCall, GgRuntime, caller, pointers, runtime
from gensor_gym.hardware.cpuinfo import usable_cores
from gensor_gym.operators.computation import Computation

_LOADED: dict[tuple[str, int], NativeKernel] = {}


def load(kernel: Kernel, threads: int | None = None) -> NativeKernel:
    """Load a C kernel as a function of the operator's inputs, once per digest and number of threads.

    `threads` is by default the number of usable cores, as for measured kernels.
    """
    if threads is None:
        threads = usable_cores()
    key = (kernel.digest, threads)
    if key not in _LOADED:
        _LOADED[key] = NativeKernel(kernel, threads)
    return _LOADED[key]


def load_entry(kernel: Kernel) -> Callable[..., None]:
    """Return the entry of a C kernel that needs no packed weights, as a ctypes function with its C signature.

    The kernel is compiled if needed.
    """
    return entry_of(kernel, kernel.whole)


def entry_of(kernel: Kernel, name: str) -> Callable[..., None]:
    """Return the entry `name` of a C kernel, as a ctypes function with its C signature.

    The kernel is compiled if needed.
    """
    entry = getattr(ctypes.CDLL(str(compile_c(kernel))), name)
    pointer = ctypes.c_void_p
    entry.argtypes = [pointer, pointer, pointer, ctypes.POINTER(GgRuntime)]
    entry.restype = None
    return entry


class NativeFunction:
    """Compiled code as a function of arrays.

    Threads may call it concurrently: each call has its own workspace and outputs. A second thread that calls while the thread
    pool is busy computes without the pool.
    """

    def __init__(self, computation: Computation, entry: Any, team: ctypes.Structure, workspace_bytes: int) -> None:
        """Make a function of arrays from the compiled function `entry`.

        `team` is its last argument: a `struct gg_runtime`, or a struct whose first field is a `gg_runtime`.
        """
        self.signature = Signature(computation)
        self._entry, self._team, self._workspace_bytes = entry, team, workspace_bytes
        signature, op = self.signature, self.signature.op
        types = [tensor.dtype for tensor in (*op.inputs, *op.outputs)]
        self._builtin = BuiltinKernel(entry, team, workspace_bytes, signature.given, signature.made, types)
        self._compute, self._knows_torch = self._builtin.call, False

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """Run the code and return the output, or a tuple of several, as arrays of the first input's library.

        Inputs are NumPy arrays or arrays with DLPack on the host. An input that is not dense or not aligned is copied
        (`CopyWarning`). If `out` is given (an array, or a tuple for several outputs), it is filled in and returned. Otherwise
        the memory of a returned output is reused after the last reference to it is released.

        ValueError for arrays of wrong number, shape, type or device, and for an `out` that overlaps an input or another output.
        """
        done = self._compute(*inputs) if out is None else self._filled(inputs, out)
        return self._of_others(inputs, out) if done is None else done

    def _filled(self, inputs: Sequence[Any], out: Any) -> Any:
        """Compute into `out` and return it.

        If compiled code cannot read the arrays in place, do nothing and return None.
        """
        if len(inputs) != len(self.signature.given):
            return None  # otherwise outputs would be taken for missing inputs
        if len(self.signature.made) == 1:
            return self._builtin.fill(*inputs, out)
        filled = self.signature.is_several(out) and self._builtin.fill(*inputs, *out) is not None
        return out if filled else None

    def _of_others(self, inputs: tuple[Any, ...], out: Any) -> Any:
        """Compute like `__call__`, for arrays that compiled code refused: convert them, copy them or raise ValueError."""
        if not self._knows_torch and any(map(is_of_torch, inputs)):
            self._knows_torch = True
            if know_torch():
                return self(*inputs, out=out)
        done = self._compute(*self.signature.read(inputs)) if out is None else None
        if done is not None:
            return in_library_of(inputs[0], done)
        arrays = self.signature.inputs(inputs)
        if out is None:
            return in_library_of(inputs[0], self._compute(*arrays))
        self._builtin.fill(*arrays, *self.signature.filled(out, arrays))
        return out

    def bind(self, *arrays: Any) -> BoundNative:
        """Return a function without arguments that runs the kernel on `arrays` (inputs, then outputs if given) without checks.

        `bind` checks the arrays: ValueError as in `__call__`, and for an input that would have to be copied.
        """
        given, out = self.signature.split(arrays)
        inputs = self.signature.inputs(given, copy=False)
        if out is None:
            outputs = [aligned(*one) for one in self.signature.made]
            out = in_library_of(given[0], tuple(outputs) if len(outputs) > 1 else outputs[0])
        else:
            outputs = self.signature.filled(out, inputs)
        return BoundNative(self._entry, inputs, outputs, self._workspace_bytes, self._team, out)


class NativeKernel(NativeFunction):
    """A C kernel loaded into this process, which runs on a given number of threads."""

    def __init__(self, kernel: Kernel, threads: int) -> None:
        """Compile the kernel unless the cache has it, and load it; CompileError with the compiler's message."""
        self.kernel = kernel
        super().__init__(kernel.operator, load_entry(kernel), runtime(threads), kernel.workspace_bytes)


class BoundNative:
    """A kernel bound to its arrays: each call reads their current content. Use it from one thread at a time."""

    def __init__(
        self, entry: Any, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], workspace_bytes: int,
        team: ctypes.Structure, out: Any,
    ) -> None:  # fmt: skip
        """Bind the compiled function `entry` to its arrays.

        `out` is the object that calls return; it shares the memory of `outputs`.
        """
        self.out = out
        workspace, given, written = workspace_of(workspace_bytes), pointers(inputs), pointers(outputs)
        self._kept = (inputs, outputs, workspace, given, written, team)
        output = written[0] if len(outputs) == 1 else ctypes.addressof(written)
        where = ctypes.addressof(given), output, address_of(workspace), ctypes.addressof(team)
        self._compute, self._call = caller(), ctypes.byref(GgCall(ctypes.cast(entry, ctypes.c_void_p), *where))

    def __call__(self) -> Any:
        """Run the kernel; return the output, or a tuple of several."""
        self._compute(self._call)
        return self.out
