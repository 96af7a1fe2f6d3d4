"""Loading a kernel into this process as a function on NumPy arrays."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence

import numpy as np

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.compile import compile_c
from gensor_gym.codegen.runtime.threads import GgRuntime, pointers, runtime
from gensor_gym.operators.types import ARRAY_DTYPE

Function = Callable[..., np.ndarray]
ALIGNMENT = 64
"""Bytes that outputs and workspaces are aligned to."""

_LOADED: dict[tuple[str, int], Function] = {}


def load(kernel: Kernel, threads: int | None = None) -> Function:
    """The kernel as a function of the operator's inputs that returns a new output array.

    C kernels run on `threads` threads, by default as many as this process may use; CUDA kernels ignore it.
    """
    if kernel.language == "cuda":
        from gensor_gym.codegen.runtime import cuda as cuda_load

        return cuda_load.load(kernel)
    if threads is None:
        threads = usable_threads()
    key = (kernel.digest, threads)
    if key not in _LOADED:
        _LOADED[key] = _load_c(kernel, threads)
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


def _load_c(kernel: Kernel, threads: int) -> Function:
    entry, team, op = load_entry(kernel), runtime(threads), kernel.operator

    def call(*inputs: np.ndarray) -> np.ndarray:
        arrays = checked(kernel, inputs)
        output = aligned(op.output.shape, np.dtype(ARRAY_DTYPE[op.output.dtype]))
        workspace = aligned((kernel.workspace_bytes,), np.dtype(np.uint8))
        entry(pointers(arrays), output.ctypes.data, workspace.ctypes.data, ctypes.byref(team))
        return output

    call.__doc__ = f"{op} on {threads} threads."
    return call


def checked(kernel: Kernel, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The inputs as C-contiguous arrays; ValueError unless number, shapes and dtypes are the operator's."""
    op = kernel.operator
    if len(inputs) != len(op.inputs):
        wanted = ", ".join(f"{t.name}{list(t.shape)}" for t in op.inputs)
        raise ValueError(f"{op}: {len(inputs)} arrays given, expected {len(op.inputs)}: {wanted}")
    arrays = []
    for given, want in zip(inputs, op.inputs, strict=True):
        array = np.asarray(given)
        if array.shape != want.shape or array.dtype != np.dtype(ARRAY_DTYPE[want.dtype]):
            expected = f"{ARRAY_DTYPE[want.dtype]}{list(want.shape)}"
            raise ValueError(f"{op}: input {want.name} is {array.dtype}{list(array.shape)}, expected {expected}")
        arrays.append(np.ascontiguousarray(array))
    return arrays


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An uninitialised array whose first element stands at a multiple of `ALIGNMENT` bytes."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)
