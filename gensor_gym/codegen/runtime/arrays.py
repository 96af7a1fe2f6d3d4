"""Arrays of the host as kernels take them: the operator's shapes and types, aligned memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.operators.types import ARRAY_DTYPE

Function = Callable[..., np.ndarray]
"""A loaded kernel: the operator's inputs in order give a new output array."""
ALIGNMENT = 64
"""Bytes that outputs and workspaces are aligned to."""


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
