"""Messages between the harness and a worker: length-prefixed pickles over a pair of pipes of their own."""

from __future__ import annotations

import os
import pickle
import select
import struct
import time
from typing import Any

_HEADER = struct.Struct("<Q")


class PipeClosed(Exception):
    """The other side is gone."""


class DeadlinePassed(Exception):
    """No complete message came before the deadline."""


def send(fd: int, message: object) -> None:
    """Write one message; PipeClosed if nobody reads."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    view = memoryview(_HEADER.pack(len(body)) + body)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except (BrokenPipeError, OSError) as error:
        raise PipeClosed(str(error)) from error


def receive(fd: int, deadline: float | None = None) -> Any:
    """Read one message; `deadline` is a `time.monotonic` instant. PipeClosed or DeadlinePassed if none comes."""
    (length,) = _HEADER.unpack(_read_exactly(fd, _HEADER.size, deadline))
    return pickle.loads(_read_exactly(fd, length, deadline))


def _read_exactly(fd: int, count: int, deadline: float | None) -> bytes:
    """`count` bytes from the pipe, however the kernel cuts them up."""
    parts: list[bytes] = []
    while count:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                raise DeadlinePassed
        part = os.read(fd, min(count, 1 << 20))
        if not part:
            raise PipeClosed("end of stream")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
