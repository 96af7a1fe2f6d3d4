"""Memory for weights whose pages a thread asks for while torch exports: the system hands out each when it is first written."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

import numpy as np

from gensor_gym.codegen import runtime as rooms
from gensor_gym.codegen.runtime.compile import compile_text
from gensor_gym.codegen.runtime.memory import address_of, in_large_pages
from gensor_gym.codegen.runtime.threads import ARCH


class Prepared:
    """Zeroed bytes of the process's own, from a multiple of `ALIGNMENT` on."""

    def __init__(self, size: int) -> None:
        """Ask for pages of so many bytes from now on, of twice as many: what is packed of weights may take more than they do."""
        self._memory = in_large_pages(2 * size)
        if size:
            threading.Thread(target=_touch, args=(self._memory, size), daemon=True).start()

    def take(self, size: int) -> np.ndarray:
        """So many bytes, others where these are too few; who writes there need not wait for the thread. Once."""
        memory, self._memory = self._memory, self._memory[:0]
        return memory[:size] if size <= len(memory) else in_large_pages(size)


def _touch(memory: np.ndarray, size: int) -> None:
    """Have the pages of the first bytes, which stay as they are. Python's lock is not held meanwhile; the memory is."""
    text = Path(rooms.__path__[0], "touch.c").read_text("utf-8")
    touch = ctypes.CDLL(str(compile_text(text, ARCH))).gg_touch
    touch.restype, touch.argtypes = None, [ctypes.c_void_p, ctypes.c_size_t]
    touch(address_of(memory), size)
