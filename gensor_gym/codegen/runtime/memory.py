"""Memory of arrays and workspaces for kernels: addresses, aligned allocation, initial content."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

ALIGNMENT = 64
"""Alignment of outputs and workspaces in bytes: a cache line, and the widest vector."""
_pointer_at = ctypes.c_void_p.from_address


def address_of(array: np.ndarray) -> int:
    """Return the address of an array's first element.

    It is seven times as fast as `array.ctypes.data`, which takes a microsecond.

    The pointer is the first field after the object header: extensions that were compiled against NumPy rely on it.
    """
    return _pointer_at(id(array) + object.__basicsize__).value or 0


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Allocate an uninitialised array whose address is a multiple of `ALIGNMENT` bytes.

    It is a view of an array that owns the memory.
    """
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return _aligned_part(np.empty(size + ALIGNMENT, np.uint8), size).view(dtype).reshape(shape)


def _aligned_part(raw: np.ndarray, size: int) -> np.ndarray:
    start = -address_of(raw) % ALIGNMENT
    return raw[start : start + size]


def in_large_pages(size: int) -> np.ndarray:
    """Allocate `size` zeroed, aligned bytes in a private mapping, with large pages if the system supports them.

    With small pages, the first writer waits for every page: packing 340 MB of weights took twice the time.
    """
    memory = mmap.mmap(-1, size + ALIGNMENT, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return _aligned_part(np.frombuffer(memory, np.uint8), size)


def workspace_of(size: int) -> np.ndarray:
    """Allocate a kernel's workspace of `size` bytes, zeroed and aligned.

    Zeros matter, because some lanes that are computed and discarded read memory that packing has not written. Recycled memory is
    full of denormal numbers, which make a multiply-add many times slower: a shifted product took 746 us instead of 307. In large
    workspaces the system's zero pages are first touched by the threads that use them.
    """
    return _aligned_part(np.zeros(size + ALIGNMENT, np.uint8), size)
