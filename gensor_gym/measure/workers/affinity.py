"""Placement of threads while a CPU kernel is timed.

A scheduler moves threads between timings, and a virtual machine was seen to run both threads of a team on one CPU. So during
timing the calling thread stays on the first usable CPU. The workers of our pool avoid that CPU (`codegen/runtime/runtime.c`).
`OMP_ENVIRONMENT` binds the threads of OpenMP, which torch uses, to one CPU each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

OMP_ENVIRONMENT = {"OMP_PROC_BIND": "true"}
"""Environment variables of a timing process: OpenMP puts its first thread on the first CPU, as `pinned` expects, and each further
thread on the next CPU.
"""


def leave_first_cpu() -> None:
    """Keep the calling thread, and compilers that it starts, off the CPU that `pinned` uses if there is another.

    The lowest priority does not suffice: Linux shares a CPU evenly between sessions of processes (autogroup). On two cores two in
    fifty timings of a 0.95 ms kernel then took 2.4 ms (AMD EPYC, Zen 4).
    """
    if hasattr(os, "sched_setaffinity") and len(allowed := os.sched_getaffinity(0)) > 1:
        os.sched_setaffinity(0, allowed - {min(allowed)})


@contextmanager
def pinned() -> Iterator[None]:
    """Keep the calling thread on the first CPU that it may use, inside a context. Do nothing on systems that cannot (macOS)."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
