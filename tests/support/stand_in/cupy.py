"""CuPy of a machine without a GPU: `fake_cupy`, whose kernels are matrix products, and faults that a file asks for.

It stands on `PYTHONPATH` of worker processes, so that all of a trial is real but the device: process, pipes, cubins, replies.
`$GENSOR_GYM_STAND_IN` names a file of words: `wrong`, `refuse`, `lost`, `crash` or `hang` is what kernels do from now on, a
number the seconds that a trial takes.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from gensor_gym.codegen.cuda import tensor_map
from tests.support import fake_cupy
from tests.support.fake_driver import Driver

VARIABLE = "GENSOR_GYM_STAND_IN"
LEAST_SECONDS = 2e-6
"""Of a call; the cubin says how much more."""


def wanted() -> list[str]:
    """The words of the file."""
    name = os.environ.get(VARIABLE, "")
    return Path(name).read_text(encoding="utf-8").split() if name and Path(name).exists() else []


def fault(word: str) -> None:
    """What goes wrong before a kernel has written anything."""
    if word == "refuse":
        raise fake_cupy.CUDADriverError("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested for launch")
    if word == "lost":
        raise fake_cupy.CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")
    if word == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if word == "hang":
        time.sleep(1000)


class Function(fake_cupy.Function):
    """An entry of a cubin: a product of matrices, whatever the cubin does."""

    def __init__(self, entry: str, seconds: float) -> None:
        """`seconds` that a call takes."""
        super().__init__(entry)
        self.seconds = seconds

    def run(self, arguments: tuple[Any, ...]) -> None:
        """Write the product, and let the device's clock go on."""
        words = wanted()
        for word in words:
            fault(word)
        fake_cupy.Clock.now += self.seconds
        a, b, y, _ = (array for array in arguments if array.itemsize < 128)
        key = tuple((array.ctypes.data, float(array.reshape(-1)[:: 1 + array.size // 64].sum())) for array in (a, b))
        if key not in PRODUCTS:
            PRODUCTS[key] = np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(y.dtype)
        y[...] = PRODUCTS[key]
        if "wrong" in words:
            y[0, 0] += 100


PRODUCTS: dict[Any, np.ndarray] = {}
"""By where inputs lie and what is in them: a kernel is called thousands of times."""


def opened(path: str) -> SimpleNamespace:
    """A module of a cubin."""
    text = Path(path).read_bytes()
    assert text[:4] == b"\x7fELF", "no cubin"
    time.sleep(sum(float(word) for word in wanted() if word[0].isdigit()))
    seconds = LEAST_SECONDS * (1 + zlib.crc32(text) % 1000 / 100)
    return SimpleNamespace(get_function=lambda entry: Function(entry, seconds))


fake_cupy.Stream.current = fake_cupy.Stream()
fake_cupy.module.__spec__ = __spec__
fake_cupy.module.RawModule = opened
sys.modules["cupy"] = fake_cupy.module
tensor_map.bindings = Driver
