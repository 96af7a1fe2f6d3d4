"""A C kernel as a function on NumPy arrays: its shared library, loaded into this process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

import numpy as np

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.arrays import Function, aligned, checked
from gensor_gym.codegen.runtime.compile import compile_c
from gensor_gym.codegen.runtime.threads import GgRuntime, pointers, runtime
from gensor_gym.operators.types import ARRAY_DTYPE

_LOADED: dict[tuple[str, int], Function] = {}


def load(kernel: Kernel, threads: int | None = None) -> Function:
    """The kernel as a function of the operator's inputs that returns a new output array.

    It runs on `threads` threads, by default as many as this process may use. Loaded once per digest and number of threads.
    """
    if threads is None:
        threads = usable_threads()
    key = (kernel.digest, threads)
    if key not in _LOADED:
        _LOADED[key] = _load(kernel, threads)
    return _LOADED[key]


def usable_threads() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load_entry(kernel: Kernel) -> Callable[..., None]:
    """The compiled entry of a C kernel, loaded into this process, with its signature: the one that packs all it needs."""
    entry = getattr(ctypes.CDLL(str(compile_c(kernel))), kernel.prepares or kernel.launches[0].entry)
    pointer = ctypes.c_void_p
    entry.argtypes = [pointer, pointer, pointer, ctypes.POINTER(GgRuntime)]
    entry.restype = None
    return entry


def _load(kernel: Kernel, threads: int) -> Function:
    """The entry with arrays in place of pointers."""
    entry, team, op = load_entry(kernel), runtime(threads), kernel.operator

    def call(*inputs: np.ndarray) -> np.ndarray:
        arrays = checked(kernel, inputs)
        output = aligned(op.output.shape, np.dtype(ARRAY_DTYPE[op.output.dtype]))
        workspace = aligned((kernel.workspace_bytes,), np.dtype(np.uint8))
        entry(pointers(arrays), output.ctypes.data, workspace.ctypes.data, ctypes.byref(team))
        return output

    call.__doc__ = f"{op} on {threads} threads."
    return call
