"""The process that calls a kernel which an agent wrote: `python caller.py`, with settings in JSON on standard input.

It has no clock and no expected output. It stops itself (SIGSTOP) after each burst of calls; the harness, which times the burst
from outside, then reads and writes this process's memory and lets it continue. Standard output gets one line in JSON with the
address of the memory, and a second line if the library cannot be loaded. The module imports only the standard library and runs as
a file, so that it starts within 30 ms (Zen 4).
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import runpy
import signal
import sys
from typing import Any

_PARENT_DEATH = 1
"""PR_SET_PDEATHSIG of linux/prctl.h: the signal that this process gets when its parent ends. A stopped process needs one."""
_HUGE_PAGES = 14
_RUNTIME_BYTES, _PARALLEL = 16, 8
"""Size of `struct gg_runtime` and the place of its function `parallel`."""
_CALL_BYTES = 40
"""Size of `struct gg_call` of runtime.c, whose first field is the entry."""
NOT_LOADED = 71
"""Exit code if the kernel's library cannot be loaded."""


def main(given: dict[str, Any]) -> None:
    """Map memory, start threads, give up rights, and call the kernel as often as the harness writes into the memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
    memory = mmap.mmap(-1, given["bytes"] + given["aligned"], flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    base = -(-ctypes.addressof(ctypes.c_char.from_buffer(memory)) // given["aligned"]) * given["aligned"]
    for place, size in given["huge"]:
        libc.madvise(ctypes.c_void_p(base + place), ctypes.c_size_t(size), _HUGE_PAGES)
    for place, size in given["closed"]:
        if libc.mprotect(ctypes.c_void_p(base + place), ctypes.c_size_t(size), 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect of a guard page failed")
    os.sched_setaffinity(0, given["cpus"])  # the harness has started this process from a single processor
    runtime = ctypes.CDLL(given["runtime"])
    settings = _with_threads(runtime, libc, given["threads"])
    os.sched_setaffinity(0, {min(given["cpus"])})
    isolation = os.environ.get("GENSOR_GYM_ISOLATED_BY", "")
    if given["seccomp"] and not runpy.run_path(given["seccomp"])["restrict"](True):
        isolation = isolation.replace("+seccomp", "")
    _report({"base": base, "runtime": ctypes.addressof(settings), "isolation": isolation})
    orders, table = (ctypes.c_long * 2).from_address(base), ctypes.c_void_p(base + given["table"])
    while not orders[1]:
        signal.raise_signal(signal.SIGSTOP)
        runtime.gg_calls(table, ctypes.c_long(orders[0]))
    library = _loaded(given["library"], given["entry"])  # from here on, the kernel can change everything in this process
    for number in range(given["slots"]):
        ctypes.c_void_p.from_address(base + given["table"] + _CALL_BYTES * number).value = library
    while True:
        signal.raise_signal(signal.SIGSTOP)
        runtime.gg_calls(table, ctypes.c_long(orders[0]))


def _with_threads(runtime: ctypes.CDLL, libc: ctypes.CDLL, threads: int) -> ctypes.Array[ctypes.c_char]:
    """Return a `struct gg_runtime` whose threads run. They are started by a task that does nothing: `getpid` of the C library."""
    settings = ctypes.create_string_buffer(_RUNTIME_BYTES)
    runtime.gg_runtime_init(settings, threads)
    address = ctypes.c_void_p.from_buffer(settings, _PARALLEL).value
    parallel = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_long)(address or 0)
    parallel(ctypes.addressof(settings), ctypes.cast(libc.getpid, ctypes.c_void_p), None, threads)
    return settings


def _loaded(path: str, entry: str) -> int | None:
    """Load the kernel's library and return the address of its entry. If that fails, report the reason and end this process."""
    try:
        return ctypes.cast(getattr(ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL), entry), ctypes.c_void_p).value
    except (OSError, AttributeError) as error:
        _report(f"cannot load the kernel: {error}")
        os._exit(NOT_LOADED)


def _report(said: object) -> None:
    os.write(1, f"{json.dumps(said)}\n".encode())


if __name__ == "__main__":
    main(json.load(sys.stdin))
