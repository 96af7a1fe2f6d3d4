"""Memory of kernels: address, alignment, and initial content of a workspace."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

ALIGNMENT = 64
"""Bytes that outputs and workspaces are aligned to: a cache line, and the widest vector."""
_pointer_at = ctypes.c_void_p.from_address


def address_of(array: np.ndarray) -> int:
    """Address of an array's elements, in a seventh of the microsecond that `array.ctypes.data` takes.

    The pointer is the first field after the object header: extensions that were compiled against NumPy rely on it.
    """
    return _pointer_at(id(array) + object.__basicsize__).value or 0


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An uninitialised array whose first element stands at a multiple of `ALIGNMENT` bytes, a view of one that owns it."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return _aligned_part(np.empty(size + ALIGNMENT, np.uint8), size).view(dtype).reshape(shape)


def _aligned_part(raw: np.ndarray, size: int) -> np.ndarray:
    """So many of the bytes, from a multiple of `ALIGNMENT` on."""
    start = -address_of(raw) % ALIGNMENT
    return raw[start : start + size]


def in_large_pages(size: int) -> np.ndarray:
    """Zeroed bytes from a multiple of `ALIGNMENT` on, the process's own, in large pages where the system has them.

    Who first writes small pages waits for each: 340 MB of weights were packed in twice the time.
    """
    memory = mmap.mmap(-1, size + ALIGNMENT, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return _aligned_part(np.frombuffer(memory, np.uint8), size)


def workspace_of(size: int) -> np.ndarray:
    """A kernel's workspace of `size` bytes, zeroed and aligned.

    Some lanes that are computed and discarded read memory that no pack has written. A denormal number there, which recycled
    memory is full of, makes a multiply-add many times slower: a shifted product took 746 us instead of 307. The system's pages
    are zero; large workspaces are first touched by the threads that use them.
    """
    return _aligned_part(np.zeros(size + ALIGNMENT, np.uint8), size)
