"""Buffers that detect writes outside them, by unmapped pages and guard words on both sides.

Layout of one buffer, addresses growing to the right:

    [unmapped page][guard words ... ][data][guard words, < 64 bytes][unmapped page]

Data begin at a cache line, as outputs and workspaces of called kernels do, or at a given offset from a cache line, as arrays of
NumPy do. Between rows that are apart (`Tensor.pitch`) there are NaNs. `intact` detects a write to them or to the guard words. A
read or write further out (more than 63 bytes after the end, or about a
page before the start) is a segmentation fault of the worker.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import mmap
from collections.abc import Sequence
from typing import Protocol

import numpy as np

ALIGN = 64
_PAGE = mmap.PAGESIZE
_GUARD, _NAN = 0xA5, 0xFF
_HUGE = 4 << 20
_MADV_HUGEPAGE = 14
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Guarded(Protocol):
    """A buffer in host or device memory with guard words on both sides."""

    def guard(self) -> None:
        """Write the guard words."""

    def intact(self) -> bool:
        """Whether all guard words are unchanged."""


def written_outside(outputs: Sequence[Guarded], workspace: Guarded, inputs: Sequence[Guarded]) -> str:
    """Check the guard words of all buffers. Return a message that names the buffers a kernel wrote outside of; empty if none.

    The guard words of inputs, which the next kernel uses too, are then written again.
    """
    named = [*(("output", output) for output in outputs), ("workspace", workspace)]
    named += [(f"input {i}", buffer) for i, buffer in enumerate(inputs)]
    broken = [name for name, buffer in named if not buffer.intact()]
    for buffer in inputs if broken else ():
        buffer.guard()
    return f"written outside the buffer of {', '.join(broken)}" if broken else ""


class GuardedBuffer:
    """`nbytes` bytes of memory between guard words. `array` is a view of them with `shape` and `dtype`."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype | type | str, past: int = 0, pitch: int = 0) -> None:
        """Map the pages and write the guard words. Data begin `past` bytes after a cache line. OSError if memory runs out.

        Rows are `pitch` elements apart, or follow one another (0).
        """
        dtype = np.dtype(dtype)
        row = int(np.prod(shape[-1:], dtype=np.int64)) * dtype.itemsize
        rows, apart = int(np.prod(shape[:-1], dtype=np.int64)), pitch * dtype.itemsize or row
        self.nbytes = max(0, rows - 1) * apart + min(rows, 1) * row
        lines = -(-(past + self.nbytes) // ALIGN) * ALIGN
        self._pages = -(-max(lines, 1) // _PAGE)
        if self._pages * _PAGE - lines < ALIGN:
            self._pages += 1  # without this page the data would begin at the unmapped page, with no room for guard words in front
        length = (self._pages + 2) * _PAGE
        self._map = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        for page in (base, base + length - _PAGE):
            if _libc.mprotect(page, _PAGE, 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect of a guard page failed")
        if self.nbytes >= _HUGE:
            _libc.madvise(base + _PAGE, length - 2 * _PAGE, _MADV_HUGEPAGE)  # advice only: a refusal changes nothing
        self._front = _PAGE
        self._start = length - _PAGE - lines + past
        self._bytes = np.frombuffer(self._map, dtype=np.uint8)
        self._end = length - _PAGE
        self.address = base + self._start
        data = self._bytes[self._start : self._start + self.nbytes]
        self._rows, self._between = (
            np.lib.stride_tricks.as_strided(data[begin:], size, (apart, 1))
            for begin, size in ((0, (rows, row)), (row, (rows - 1 if apart > row else 0, apart - row)))
        )
        self.array = self._rows.view(dtype).reshape(shape)  # of rows that are apart, this is a view too
        self.guard()

    def guard(self) -> None:
        """Write the guard words, and NaNs between rows."""
        self._between[...] = _NAN
        self._bytes[self._front : self._start] = _GUARD
        self._bytes[self._start + self.nbytes : self._end] = _GUARD

    def intact(self) -> bool:
        """Whether every guard word on both sides, and every NaN between rows, is unchanged."""
        front = self._bytes[self._front : self._start]
        back = self._bytes[self._start + self.nbytes : self._end]
        return bool((front == _GUARD).all() and (back == _GUARD).all() and (self._between == _NAN).all())

    def poison(self) -> None:
        """Fill the data with 0xFF bytes: NaN in every floating type, -1 in every integer type."""
        self._rows[...] = _NAN
