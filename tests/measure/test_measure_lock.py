"""One worker times at a time, on the cores that it may use."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from gensor_gym.measure.devices import machine_lock
from gensor_gym.measure.devices.machine_lock import LockWarning, lock_path, timing_lock
from gensor_gym.measure.workers.affinity import leave_first_cpu, pinned


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder like /tmp, which other users reach as well."""
    path = Path(tempfile.mkdtemp(prefix="gensor-gym-lock-", dir="/tmp"))
    path.chmod(0o1777)
    (path / "mine").mkdir(mode=0o700)
    monkeypatch.setattr(machine_lock, "FOLDER", path)
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(path / "mine" / "cache"))
    yield path
    shutil.rmtree(path)


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_the_file_has_no_users_name_and_is_for_all_whatever_the_umask(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(folder / "mine"))
    before = os.umask(0o077)
    try:
        path = lock_path("-gpu")
    finally:
        os.umask(before)
    assert path == folder / "gensor_gym-timing-gpu.lock" and stat.S_IMODE(path.stat().st_mode) == 0o666
    with timing_lock("-gpu"):
        assert is_held(path) and not is_held(lock_path())
    assert not is_held(path)


def test_what_stands_in_the_file_stays(folder: Path) -> None:
    path = folder / "gensor_gym-timing.lock"
    path.write_text("of another version")
    path.chmod(0o444)  # nothing but reading is needed
    with timing_lock():
        assert is_held(path)
    assert path.read_text() == "of another version"


def test_a_file_that_is_there_is_opened_to_read_and_never_with_o_creat(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fs.protected_regular` refuses both for another user's file in a folder like /tmp."""
    path, plain, seen = lock_path(), os.open, []

    def noted(file: str | Path, flags: int, *rest: int) -> int:
        seen.append(flags)
        return plain(file, flags, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", noted)
        with timing_lock():
            assert is_held(path)
    assert seen and all(flags & (os.O_CREAT | os.O_ACCMODE | os.O_TRUNC) == os.O_RDONLY for flags in seen)
    assert all(flags & os.O_NOFOLLOW and flags & os.O_CLOEXEC for flags in seen)


def plant(kind: str, path: Path, victim: Path) -> None:
    """Take the lock's name."""
    if kind == "a link":
        path.symlink_to(victim)
    elif kind == "a link to nothing":
        path.symlink_to(victim.with_name("none"))
    elif kind == "a folder":
        path.mkdir()
    else:
        os.mkfifo(path)


@pytest.mark.parametrize("kind", ["a link", "a link to nothing", "a folder", "a pipe"])
def test_what_is_no_lock_is_left_alone_and_timing_goes_on(folder: Path, kind: str) -> None:
    path, victim = folder / "gensor_gym-timing.lock", folder / "mine" / "victim"
    victim.write_text("precious")
    plant(kind, path, victim)
    with pytest.warns(LockWarning, match=f"{path} is (a link|no file): timings wait for this user's own"), timing_lock():
        own = folder / "mine" / "cache" / "locks" / path.name
        assert is_held(own) and not is_held(victim)
    assert victim.read_text() == "precious" and not victim.with_name("none").exists()


def test_where_no_file_can_be_had_timing_goes_on_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_lock, "FOLDER", folder / "none")
    (folder / "mine" / "cache").mkdir()
    (folder / "mine" / "cache" / "locks").mkdir()
    (folder / "mine" / "cache" / "locks" / "gensor_gym-timing.lock").symlink_to(folder)
    words = "no lock for timings: .* cannot be made .* is a link; timings wait for nobody"
    with pytest.warns(LockWarning, match=words), timing_lock():
        pass
    with pytest.raises(ValueError, match="no lock for timings"):
        lock_path()


def test_a_file_that_was_removed_locks_out_nobody(folder: Path) -> None:
    """Who waited for the removed file takes the new one's lock."""
    path, order = lock_path(), []

    def wait() -> None:
        with timing_lock():
            order.append("second")

    with timing_lock():
        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.1)
        path.unlink()
        with timing_lock():
            order.append("first")
            assert path.exists()
    waiting.join(10)
    assert order == ["first", "second"]


def hold(uid: int, begin: float, answers: Connection) -> None:
    """As another user: wait for the lock twice, hold it, tell when."""
    os.umask(0o077)
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    time.sleep(max(0.0, begin - time.monotonic()))
    times = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with timing_lock():
                start = time.monotonic()
                time.sleep(0.1)
                times.append((start, time.monotonic()))
    answers.send(times)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming two users needs root")
def test_two_users_wait_for_each_other() -> None:
    fork, begin = multiprocessing.get_context("fork"), time.monotonic() + 0.3
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
        children = []
        for uid in (65533, 65534):
            mine, theirs = fork.Pipe()
            child = fork.Process(target=hold, args=(uid, begin, theirs))
            child.start()
            children.append((child, mine))
    for child, mine in children:
        assert mine.poll(10), "no answer"
        found += mine.recv()
        child.join(10)
        assert child.exitcode == 0
    spans = sorted(found)
    assert len(spans) == 4 and all(before[1] <= after[0] for before, after in zip(spans, spans[1:], strict=False)), spans


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
