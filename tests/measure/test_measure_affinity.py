"""What holds while something is timed on a CPU: where threads run, and that memory does not come and go."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from gensor_gym.measure.workers.affinity import leave_first_cpu, pinned

ONE_CPU = not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2
needs_two = pytest.mark.skipif(ONE_CPU, reason="threads cannot be told apart on one CPU")

FAULTS = """
import ctypes, resource, sys
from gensor_gym.measure.baselines.torch import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
SIZE = 48 << 20  # above what glibc ever takes from its heap by itself
def once():
    block = libc.malloc(SIZE)
    ctypes.memset(block, 1, SIZE)
    libc.free(block)
once()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    once()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@needs_two
def test_pinned_keeps_the_thread_and_gives_back() -> None:
    """One CPU inside, all of them after, also after an error."""
    allowed = os.sched_getaffinity(0)
    with pytest.raises(RuntimeError, match="inside"), pinned():
        assert os.sched_getaffinity(0) == {min(allowed)}
        raise RuntimeError("inside")
    assert os.sched_getaffinity(0) == allowed


@needs_two
def test_compilers_leave_the_cpu_of_a_timing_alone() -> None:
    """A thread's affinity is its own, and that of the processes that it starts."""
    allowed, code = os.sched_getaffinity(0), "import os; print(*os.sched_getaffinity(0))"
    with ThreadPoolExecutor(1, initializer=leave_first_cpu) as compilers:
        child = compilers.submit(subprocess.check_output, [sys.executable, "-c", code], text=True).result()
    with pinned():
        assert os.sched_getaffinity(0).isdisjoint(map(int, child.split()))
    assert {int(cpu) for cpu in child.split()} | {min(allowed)} == allowed == os.sched_getaffinity(0)


@needs_two
@pytest.mark.skipif(sys.platform != "linux", reason="affinities of threads are read from /proc")
def test_a_pool_started_while_pinned_uses_other_cpus() -> None:
    """Workers inherit the one CPU of the thread that starts them, and leave it at their first job."""
    code = """
import ctypes, os
from gensor_gym.codegen.runtime.threads import load_runtime, runtime
from gensor_gym.measure.workers.affinity import pinned
load_runtime()
TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_long, ctypes.c_int)
masks = {}
def task(context, index, thread):
    import time
    time.sleep(0.02)
    masks[thread] = os.sched_getaffinity(0)
held = TASK(task)
struct = runtime(2)
parallel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, TASK, ctypes.c_void_p, ctypes.c_long)(struct.parallel)
with pinned():
    for _ in range(3):
        parallel(ctypes.addressof(struct), held, None, 8)
print(sorted(masks), masks[0].isdisjoint(masks[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["[0,", "1]", "True"], done.stderr


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's mallopt")
def test_freed_memory_is_kept_for_torch() -> None:
    """Without it, every call of a library that allocates its output faults its pages in again."""

    def faults(how: str) -> int:
        command = [sys.executable, "-c", FAULTS, how]
        return int(subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout)

    assert faults("default") > 1000
    assert faults("keep") < 100
