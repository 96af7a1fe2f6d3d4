"""Outputs that keep their pages: an array is handed out again when nothing refers to its memory any more.

Fresh memory costs a page fault for every 4 KiB at its first touch, which for a matrix of some megabytes takes as long as a
third of its product. NumPy makes the array that owns memory the end of every chain of bases, and views, memoryviews, DLPack
capsules and tensors hold their array; so the owner's reference count says whether anything of it lives.
"""

from __future__ import annotations

import ctypes
import sys
import threading

import numpy as np

ALIGNMENT = 64
"""Bytes that outputs and workspaces are aligned to: a cache line, and the widest vector."""
KEPT = 4
"""Outputs of a kernel that a thread keeps; more that live at a time are the caller's alone."""
_pointer_at = ctypes.c_void_p.from_address


def address_of(array: np.ndarray) -> int:
    """Where the elements of an array begin, in a seventh of the microsecond that `array.ctypes.data` takes.

    The pointer is the first field after the head that every object has: extensions that were compiled against NumPy rely on it.
    """
    return _pointer_at(id(array) + object.__basicsize__).value or 0


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An uninitialised array whose first element stands at a multiple of `ALIGNMENT` bytes, a view of one that owns it."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -address_of(raw) % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def workspace_of(size: int) -> np.ndarray:
    """A kernel's workspace of so many bytes, zeroed and aligned.

    Some lanes that are computed and thrown away read places that no pack has written. A denormal number there, of which recycled
    memory is full, makes a multiply-add take many times as long: a shifted product took 746 us where it takes 307.
    """
    workspace = aligned((size,), np.dtype(np.uint8))
    workspace.fill(0)
    return workspace


class Outputs:
    """Arrays of one shape and type, each thread's own: no two threads are ever handed the same memory."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        """Nothing is allocated yet."""
        self.shape, self.dtype = shape, dtype
        self._threads = threading.local()

    def take(self) -> tuple[np.ndarray, int]:
        """An uninitialised, aligned array [shape] to which nothing else refers, and its address."""
        try:
            kept = self._threads.kept
        except AttributeError:
            kept = self._threads.kept = []
        for number, (array, address) in enumerate(kept):
            if sys.getrefcount(array.base) == _IDLE:
                if number:  # the one that was used last is the warmest
                    kept.insert(0, kept.pop(number))
                return array.view(), address
        array = aligned(self.shape, self.dtype)
        address = address_of(array)
        kept.insert(0, (array, address))
        del kept[KEPT:]  # whose memory goes when the caller lets go of it
        return array.view(), address


def _idle() -> int:
    """What the reference count of an owner is, asked as `take` does, while its kept array alone refers to it."""
    kept = [(aligned((1,), np.dtype(np.float32)), 0)]
    count = 0
    for _, (array, _) in enumerate(kept):
        count = sys.getrefcount(array.base)
    return count


_IDLE = _idle()
