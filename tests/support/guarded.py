"""Arrays that end or start at a page that nobody may touch."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np


def guarded(array: np.ndarray, at_end: bool) -> np.ndarray:
    """A copy of an array that ends (or starts) at a page boundary, beyond which any access faults."""
    page = mmap.PAGESIZE
    inner = max(1, -(-array.nbytes // page)) * page
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    start = libc.mmap(None, inner + 2 * page, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    assert libc.mprotect(start + page, inner, mmap.PROT_READ | mmap.PROT_WRITE) == 0
    first = start + page + (inner - array.nbytes if at_end else 0)
    buffer = (ctypes.c_ubyte * array.nbytes).from_address(first)
    copy = np.frombuffer(buffer, array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
