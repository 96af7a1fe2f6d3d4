"""Python's interface to the C runtime (`runtime.c`): one shared thread pool for all generated kernels of this process."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gensor_gym.codegen.runtime.compile import compile_text
from gensor_gym.codegen.runtime.memory import address_of

ARCH = "native"


class GgRuntime(ctypes.Structure):
    """`struct gg_runtime` of `runtime.h`: a number of threads, and the function that runs a parallel loop on them."""

    _fields_ = [("threads", ctypes.c_int), ("parallel", ctypes.c_void_p)]


class GgCall(ctypes.Structure):
    """`struct gg_call` of `runtime.c`: a kernel's entry and its arguments."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("entry", "inputs", "output", "workspace", "runtime")]


def runtime_text() -> str:
    """Return the C source of the runtime (the thread pool and its parallel loop)."""
    folder = Path(__file__).parent
    return folder.joinpath("runtime.h").read_text("utf-8") + folder.joinpath("runtime.c").read_text("utf-8")


def runtime_library() -> Path:
    """Return the path of the C runtime's shared library, which is compiled at the first call on a machine."""
    return compile_text(runtime_text(), ARCH)


@functools.cache
def load_runtime() -> ctypes.CDLL:
    """Load the C runtime's library into this process. Return it, with the C signatures of its functions."""
    library = ctypes.CDLL(str(runtime_library()))
    library.gg_runtime_init.argtypes = [ctypes.POINTER(GgRuntime), ctypes.c_int]
    library.gg_runtime_init.restype = None
    library.gg_time.restype = ctypes.c_double
    library.gg_time.argtypes = [ctypes.POINTER(GgCall), ctypes.c_long, ctypes.c_long, ctypes.c_long]
    return library


@functools.cache
def runtime(threads: int) -> GgRuntime:
    """Return a C runtime that uses at most `threads` threads, including the caller's; ValueError if `threads` is less than 1."""
    if threads < 1:
        raise ValueError(f"threads={threads}: expected at least 1")
    result = GgRuntime()
    load_runtime().gg_runtime_init(ctypes.byref(result), threads)
    return result


@functools.cache
def caller() -> Any:
    """Return the C function `gg_call`, which runs a kernel's entry and takes `byref` of a GgCall.

    Its argument types are not declared. A call takes 0.15 us; passing the four arguments separately would take 0.65 us.
    """
    call = load_runtime()["gg_call"]
    call.restype = None
    return call


def pointers(arrays: Sequence[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    """Return a C array of the arrays' addresses, for a kernel's argument `inputs`. The caller must keep `arrays` alive."""
    return (ctypes.c_void_p * max(1, len(arrays)))(*map(address_of, arrays))


def time_calls(
    entry: Any,
    inputs: Sequence[np.ndarray],
    output: np.ndarray,
    workspace: np.ndarray,
    threads: int,
    calls: int,
) -> float:
    """Run a kernel's entry `calls` times on C-contiguous arrays; return the total time in seconds."""
    given, team = pointers(inputs), runtime(threads)
    where = address_of(output), address_of(workspace), ctypes.addressof(team)
    call = GgCall(ctypes.cast(entry, ctypes.c_void_p), ctypes.addressof(given), *where)
    return load_runtime().gg_time(call, 1, 0, calls)
