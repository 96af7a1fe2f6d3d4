"""The timing lock: all users of a device wait for one another, and nobody's file is followed, written or in the way."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import shutil
import stat
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from gensor_gym.measure.devices import machine_lock
from gensor_gym.measure.devices.machine_lock import LockWarning, lock_path, timing_lock


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
