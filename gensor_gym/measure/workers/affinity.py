"""Where threads run while something is timed on a CPU.

Left to itself, a scheduler moves threads between timings, and in a virtual machine it was seen to put both threads of a
team on one CPU. While timing, the calling thread therefore stays on the first CPU it may use; the workers of our pool keep
off it (`codegen/runtime/runtime.c`), and those of OpenMP, which torch uses, are bound one to a CPU by `OMP_ENVIRONMENT`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

OMP_ENVIRONMENT = {"OMP_PROC_BIND": "true"}
"""For a process that times: OpenMP's first thread on the first CPU, the next on the next, as `pinned` expects."""


@contextmanager
def pinned() -> Iterator[None]:
    """Keep the calling thread on the first CPU that it may use; where systems cannot (macOS), nothing happens."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
