"""Lock by which only one kernel at a time is timed on a device: workers of all runs and all users wait for one another.

The lock is on a file that every user can read and find by its name, so it is in /tmp regardless of $TMPDIR. It is opened for
reading, which suffices for `flock`: another user's file in a folder like /tmp may not be opened for writing or with O_CREAT
(`fs.protected_regular`). Links are not followed, and nothing is ever written or truncated. If the file cannot be used, only the
user's own processes wait for one another, with a warning. Containers and services with a /tmp of their own share no lock with
other processes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gensor_gym.cache.folders import make_cache_dir

FOLDER = Path("/tmp")
_SHARED_MODE = 0o666
_TRIES, _PAUSE = 20, 5e-3
"""Number of retries while another process may be creating the file and setting its permissions, and seconds between retries."""


class LockWarning(RuntimeWarning):
    """Warning that the timing lock which all users of a device share cannot be used."""


class _Unusable(Exception):
    """The file of the shared lock cannot be used."""


def lock_path(device: str = "") -> Path:
    """Return the path of the file whose lock is the timing lock of a device, by default of the processor.

    Other programs may use the lock too. The file exists afterwards. If another user's file, a link or a folder has its name and
    cannot be used, the path is that of a file of this user, and a LockWarning says that timings do not wait for other users.
    ValueError if neither file can be made.
    """
    shared = FOLDER / f"gensor_gym-timing{device}.lock"
    try:
        return _ready(shared)
    except _Unusable as error:
        try:
            own = _ready(make_cache_dir("locks") / shared.name)
        except _Unusable as also:
            raise ValueError(f"no lock for timings: {error}; {also}") from None
        warnings.warn(f"{error}: timings wait for this user's own, not for those of others", LockWarning, stacklevel=2)
        return own


@contextmanager
def timing_lock(device: str = "") -> Iterator[None]:
    """Hold the timing lock of a device, by default the processor. A file's lock is released when the process ends.

    If no file can be used, a LockWarning says that timings do not wait for others.
    """
    try:
        place = _taken(device)
    except ValueError as error:
        warnings.warn(f"{error}; timings wait for nobody", LockWarning, stacklevel=3)
        yield
        return
    try:
        yield
    finally:
        os.close(place)


def _taken(device: str) -> int:
    """Take the timing lock of a device. Return the file descriptor that holds it.

    The lock is taken again if its file was replaced meanwhile.
    """
    while True:
        path = lock_path(device)
        with suppress(_Unusable):  # the file was replaced meanwhile
            place = _opened(path)
            fcntl.flock(place, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(place), os.lstat(path)):
                    return place
            os.close(place)


def _ready(path: Path) -> Path:
    """Create the file if it is missing; return its path. Raise _Unusable, with the reason, if it cannot be locked."""
    os.close(_opened(path))
    with suppress(OSError):  # only the owner may set a file's times
        os.utime(path)  # systems delete files in /tmp that were not used for days
    return path


def _opened(path: Path) -> int:
    """Open the file for reading. Return the file descriptor. A missing file is created, readable by all users.

    Raise _Unusable, with the reason, if that fails.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # opening a pipe that somebody put there must not block
    for last in (False,) * _TRIES + (True,):
        try:
            place = os.open(path, flags)
        except FileNotFoundError:
            _make(path, flags)
        except OSError as error:
            if last or error.errno != errno.EACCES:
                why = "is a link" if error.errno == errno.ELOOP else f"cannot be opened ({error.strerror})"
                raise _Unusable(f"{path} {why}") from None
            time.sleep(_PAUSE)
        else:
            if stat.S_ISREG(os.fstat(place).st_mode):
                return place
            os.close(place)
            raise _Unusable(f"{path} is no file")
    raise _Unusable(f"{path} is removed again and again")


def _make(path: Path, flags: int) -> None:
    try:
        place = os.open(path, flags | os.O_CREAT | os.O_EXCL, _SHARED_MODE)
    except FileExistsError:
        return
    except OSError as error:
        raise _Unusable(f"{path} cannot be made ({error.strerror})") from None
    os.fchmod(place, _SHARED_MODE)
    os.close(place)
