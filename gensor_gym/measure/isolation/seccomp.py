"""A filter of system calls: no sockets, no other processes, no changes of owners or modes. Linux on x86-64 and 64-bit ARM.

It imports only the standard library, as `landlock.py` does. It lists refused calls instead of allowed calls, because the calls
that Python, NumPy and torch need differ by version. Refused calls fail with EPERM, as if the user lacked the right. The filter is
set with SPEC_ALLOW: without it, some systems switch off speculation past stores, which slows every kernel down.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterator

_ARCHITECTURES = {"x86_64": (0xC000003E, 0, 317), "aarch64": (0xC00000B7, 1, 277)}
"""Machine's name -> three numbers: of the architecture in a filter (linux/audit.h), of its column in `REFUSED`, and of the system
call that installs a filter.
"""
_ABSENT = -1
REFUSED: dict[str, tuple[int, int]] = {
    # sockets, and io_uring, which can open sockets without these calls
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242), "sendto": (44, 206), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    # new processes, and access to other processes
    "fork": (57, _ABSENT), "vfork": (58, _ABSENT), "execve": (59, 221), "execveat": (322, 281), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "kill": (62, 129), "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "process_madvise": (440, 440),
    # memory, queues and keys that all processes of a user share
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186), "semget": (64, 190),
    "mq_open": (240, 180), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # changes that Landlock does not prevent: sizes (before its version 3), modes, owners, attributes, times
    "truncate": (76, 45), "chmod": (90, _ABSENT), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, _ABSENT), "fchown": (93, 55), "lchown": (94, _ABSENT), "fchownat": (260, 54), "setxattr": (188, 5),
    "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16), "setxattrat": (463, 463), "removexattrat": (466, 466), "utime": (132, _ABSENT),
    "utimes": (235, _ABSENT), "futimesat": (261, _ABSENT), "utimensat": (280, 88),
    # changes of the machine, which matter if the administrator times kernels
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "setns": (308, 268),
    "unshare": (272, 97), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsmount": (432, 432),
    "mount_setattr": (442, 442), "open_by_handle_at": (304, 265), "mknod": (133, _ABSENT), "mknodat": (259, 33),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "sethostname": (170, 161),
}  # fmt: skip
"""System call -> its numbers on x86-64 and on 64-bit ARM."""
ALLOWED: dict[str, tuple[int, int]] = {
    "read": (0, 63), "write": (1, 64), "open": (2, _ABSENT), "openat": (257, 56), "close": (3, 57), "lseek": (8, 62),
    "pread64": (17, 67), "fstat": (5, 80), "newfstatat": (262, 79), "munmap": (11, 215), "mprotect": (10, 226),
    "madvise": (28, 233), "brk": (12, 214), "futex": (202, 98), "sched_yield": (24, 124), "clock_gettime": (228, 113),
    "sched_setaffinity": (203, 122), "sched_getaffinity": (204, 123), "getcpu": (309, 168), "getpid": (39, 172),
    "gettid": (186, 178), "tgkill": (234, 131), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "restart_syscall": (219, 128), "getrandom": (318, 278), "exit": (60, 93), "exit_group": (231, 94),
}  # fmt: skip
"""System call -> its numbers on x86-64 and on 64-bit ARM: what a process needs to load a library and to compute on threads that
it has. It starts no thread or timer, moves no memory, and maps no memory that two addresses share.
"""
_MMAP, _MAP_SHARED, _FLAGS = (9, 222), 0x01, 40
"""Numbers of `mmap`, the bit of its flags that a shared mapping has (MAP_SHARED_VALIDATE too), and the flags' place."""
_CLONE, _CLONE3, _TGKILL, _PRLIMIT = (56, 220), (435, 435), (234, 131), (302, 261)
_CLONE_THREAD = 0x10000
_X32 = 0x40000000
"""First number of the x32 system calls of x86-64, which `REFUSED` does not list."""
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_SET_FILTER, _ALL_THREADS, _SPEC_ALLOW = 1, 1, 4


def restrict(computes: bool = False) -> bool:
    """Install the filter for all threads of this process; False if the system has no filters or its architecture is unknown.

    With `computes` it allows only the calls of `ALLOWED`. A process can have both filters. The process must have given up new
    privileges (`landlock.no_new_privileges`), unless it runs as root.
    """
    known = _ARCHITECTURES.get(platform.machine())
    libc = ctypes.CDLL(None, use_errno=True)
    if known is None or sys.platform != "linux":
        return False
    architecture, column, call = known
    steps = computing(architecture, column) if computes else program(architecture, column, os.getpid())
    text = b"".join(steps)
    room = ctypes.create_string_buffer(text, len(text))
    given = struct.pack("@HP", len(text) // 8, ctypes.addressof(room))
    return bool(libc.syscall(call, _SET_FILTER, _ALL_THREADS | _SPEC_ALLOW, given) == 0)


def program(architecture: int, column: int, pid: int) -> Iterator[bytes]:
    """Yield the instructions of the filter for the process `pid`, which may start and signal its own threads, but no processes.

    `column` selects the numbers of system calls in `REFUSED` for the `architecture`.
    """
    refuse = _step(_RETURN, _ERROR | errno.EPERM)
    yield _step(_LOAD, _ARCHITECTURE)
    yield _step(_EQUAL, architecture, 1, 0)
    yield _step(_RETURN, _KILL)
    yield _step(_LOAD, _NUMBER)
    if column == 0:
        yield from (_step(_AT_LEAST, _X32, 0, 1), refuse)
    for numbers in REFUSED.values():
        if numbers[column] != _ABSENT:
            yield from (_step(_EQUAL, numbers[column], 0, 1), refuse)
    yield from (_step(_EQUAL, _CLONE3[column], 0, 1), _step(_RETURN, _ERROR | errno.ENOSYS))  # libraries then use `clone`
    own = [(_EQUAL, pid)]
    for numbers, tests in ((_CLONE, [(_ANY_BIT, _CLONE_THREAD)]), (_TGKILL, own), (_PRLIMIT, [(_EQUAL, 0), *own])):
        yield _step(_EQUAL, numbers[column], 0, 2 * len(tests) + 2)
        yield _step(_LOAD, _FIRST_ARGUMENT)
        for code, value in tests:
            yield from (_step(code, value, 0, 1), _step(_RETURN, _ALLOW))
        yield refuse
    yield _step(_RETURN, _ALLOW)


def computing(architecture: int, column: int) -> Iterator[bytes]:
    """Yield the instructions of the filter that allows only the system calls of `ALLOWED`, and `mmap` of private memory."""
    refuse, allow = _step(_RETURN, _ERROR | errno.EPERM), _step(_RETURN, _ALLOW)
    yield from (_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, architecture, 1, 0), _step(_RETURN, _KILL), _step(_LOAD, _NUMBER))
    for numbers in ALLOWED.values():
        if numbers[column] != _ABSENT:
            yield from (_step(_EQUAL, numbers[column], 0, 1), allow)
    yield _step(_EQUAL, _MMAP[column], 0, 3)
    yield from (_step(_LOAD, _FLAGS), _step(_ANY_BIT, _MAP_SHARED, 1, 0), allow)
    yield refuse


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    """Encode one instruction of the filter (`struct sock_filter`).

    An instruction that tests skips the next `yes` instructions if the test succeeds, else the next `no`.
    """
    return struct.pack("=HBBI", code, yes, no, value)
