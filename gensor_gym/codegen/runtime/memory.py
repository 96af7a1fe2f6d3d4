"""Memory that kernels compute in: where it begins, how it is aligned, what a workspace begins as."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

ALIGNMENT = 64
"""Bytes that outputs and workspaces are aligned to: a cache line, and the widest vector."""
_pointer_at = ctypes.c_void_p.from_address


def address_of(array: np.ndarray) -> int:
    """Where the elements of an array begin, in a seventh of the microsecond that `array.ctypes.data` takes.

    The pointer is the first field after the head that every object has: extensions that were compiled against NumPy rely on it.
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
    """A kernel's workspace of so many bytes, zeroed and aligned.

    Some lanes that are computed and thrown away read places that no pack has written. A denormal number there, of which recycled
    memory is full, makes a multiply-add take many times as long: a shifted product took 746 us where it takes 307.
    The system's pages come as zeros: what is large is written first by whoever uses it.
    """
    return _aligned_part(np.zeros(size + ALIGNMENT, np.uint8), size)
