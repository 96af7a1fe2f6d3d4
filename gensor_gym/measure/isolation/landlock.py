"""Landlock: a process permanently gives up access to all files except some. Linux 5.13 and newer, without a library.

This module imports only the standard library. It is loaded before a process starts threads, since Landlock binds the calling
thread and the threads that it starts later. Numbers and structures are those of linux/landlock.h. Landlock does not cover names,
sizes and times of files (`stat`), or open file descriptors.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""Numbers of Landlock's three system calls, equal on every processor."""
_ASK_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
_REMOVE, _MAKE, _MOVE = 1 << 4 | 1 << 5, 1 << 7 | 1 << 8, 1 << 13
"""Bits of the rights to remove and to make files and folders, and to move a file to another folder."""
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | 1 << 15
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Version of Landlock -> bits of the rights on files that it can restrict. A version that is missing here has the rights of the
version before.
"""
_TCP, _SCOPES = 3, 3
"""Bits of the rights to bind and connect TCP ports, from version 4; bits that restrict abstract sockets and signals to other
processes, from version 6.
"""
_NO_NEW_PRIVILEGES = 38

_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """Return the version of the system's Landlock; 0 without Landlock, or if a container's filter forbids it."""
    return max(0, _libc.syscall(_CREATE, None, ctypes.c_size_t(0), _ASK_VERSION)) if sys.platform == "linux" else 0


def restrict(readable: Iterable[str], writable: Iterable[str], executes: bool = False) -> bool:
    """Let this thread and its later threads use files only beneath these paths. Return False if Landlock is unavailable.

    Files beneath `readable` can be read, files beneath `writable` also written. A path is ignored if it does not exist or this
    process may not open it. With `executes`, for compilers, files beneath `readable` can be executed (`execve`) and files move
    between folders; otherwise neither is possible. No TCP port can be opened if Landlock's version supports that. This cannot be
    undone.
    """
    known = version()
    if not known:
        return False
    rights = _RIGHTS[max(number for number in _RIGHTS if number <= known)]
    ruleset = _ruleset(known, rights)
    if ruleset < 0:
        return False
    try:
        read = _READ_FILE | _READ_DIR
        for path in readable:
            _allow(ruleset, path, (read | _EXECUTE * executes) & rights)
        for path in writable:
            _allow(ruleset, path, (read | _WRITE_FILE | _TRUNCATE | _REMOVE | _MAKE | _MOVE * executes) & rights)
        return no_new_privileges() and _libc.syscall(_RESTRICT, ruleset, 0) == 0
    finally:
        os.close(ruleset)


def no_new_privileges() -> bool:
    """Set this process's `no_new_privs`, which Linux requires before Landlock and filters; return False if it is refused."""
    return sys.platform == "linux" and bool(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0)


def _ruleset(known: int, rights: int) -> int:
    """Make a Landlock ruleset that restricts all of `rights`. Return its file descriptor; negative if it is refused."""
    fields = [rights, *([_TCP] if known >= 4 else []), *([_SCOPES] if known >= 6 else [])]
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    return int(_libc.syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0))


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Allow access to a file, or to everything in a folder, in a Landlock ruleset. A path that does not exist is ignored.

    A rule holds for an inode. /proc creates a new inode for a name that was dropped from memory, and no rule covers the new
    inode. So a file of /proc stays open, which keeps its inode.
    """
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, place)
        if _libc.syscall(_ADD, ruleset, _PATH_BENEATH, rule, 0) != 0:
            raise OSError(ctypes.get_errno(), f"Landlock refuses a rule for {path}")
    finally:
        if not path.startswith("/proc/"):
            os.close(place)
