"""Messages between a worker and its parent process, each preceded by its length, over a pair of pipes.

Requests are pickles. Replies are JSON, read as numbers and text only (`replies.py`), because a kernel may have written them.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import struct
import time
from typing import Any

_HEADER = struct.Struct("<Q")
LARGEST_REPLY = 64 << 20
"""Largest number of bytes of a reply. Samples of comparisons of hundreds of kernels take a tenth of it."""


class PipeClosed(Exception):
    """The process at the other end of the pipe has ended."""


class DeadlinePassed(Exception):
    """No complete message arrived before the deadline."""


class BadReply(ValueError):
    """A worker's message is no valid reply."""


def send_request(fd: int, request: object) -> None:
    """Write a request to a worker; PipeClosed if nobody reads."""
    _send(fd, pickle.dumps(request, protocol=pickle.HIGHEST_PROTOCOL))


def receive_request(fd: int) -> Any:
    """Read a request of the parent process; PipeClosed if none comes."""
    (length,) = _HEADER.unpack(_read_exactly(fd, _HEADER.size, None))
    return pickle.loads(_read_exactly(fd, length, None))


def send_reply(fd: int, kind: str, value: object) -> None:
    """Write a reply to the parent process; PipeClosed if nobody reads. Values that JSON does not support become text."""
    _send(fd, json.dumps([kind, value], default=str).encode())


def receive_reply(fd: int, deadline: float) -> tuple[str, Any]:
    """Read a worker's reply. Return (kind, value). `deadline` is an instant of `time.monotonic`.

    PipeClosed or DeadlinePassed if none comes, BadReply if it is too long or not a pair in JSON.
    """
    (length,) = _HEADER.unpack(_read_exactly(fd, _HEADER.size, deadline))
    if length > LARGEST_REPLY:
        raise BadReply(f"{length} bytes, expected at most {LARGEST_REPLY}")
    body = _read_exactly(fd, length, deadline)
    try:
        kind, value = json.loads(body)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadReply(f"no kind and value in JSON: {error}") from None
    return str(kind), value


def _send(fd: int, body: bytes) -> None:
    view = memoryview(_HEADER.pack(len(body)) + body)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except (BrokenPipeError, OSError) as error:
        raise PipeClosed(str(error)) from error


def _read_exactly(fd: int, count: int, deadline: float | None) -> bytes:
    """Read exactly `count` bytes from the pipe. PipeClosed at the pipe's end, DeadlinePassed after the deadline."""
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
