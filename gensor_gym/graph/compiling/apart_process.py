"""The compile server: `python -m gensor_gym.graph.compiling.apart_process PARENT`.

Each line of standard input names a function and argument types; a byte on standard output reports it done. The server ends when
idle for a while, at the end of standard input, and when its parent has ended for any reason.
"""

from __future__ import annotations

import base64
import os
import pickle
import select
import sys
import threading
import time
from importlib import import_module

IDLE_S = 5.0
"""Idle seconds after which it ends."""
WATCH_S = 0.2
"""Seconds between two looks at whether the parent is there."""


def main() -> None:
    """Compile one function after the other."""
    parent = int(sys.argv[1])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    requests = sys.stdin.buffer
    while _is_something_there(requests.fileno()):
        line = _line(requests.fileno())
        if not line:
            return
        module, name, types = pickle.loads(base64.b64decode(line))
        try:
            function = getattr(import_module(module), name)
            getattr(function, "whole", function).compile(types)
        except Exception:  # who asked compiles it as well, and says what is wrong with it
            sys.exit(1)
        os.write(sys.stdout.fileno(), b".")


def _is_something_there(descriptor: int) -> bool:
    """Whether there is something to read before it has been idle for too long."""
    return bool(select.select([descriptor], [], [], IDLE_S)[0])


def _line(descriptor: int) -> bytes:
    """The next line, read byte by byte so that no other line is taken with it; empty at the end."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            return b""
        line += byte
    return line


def _end_with(parent: int) -> None:
    """End as soon as the parent has ended; an orphan belongs to another process."""
    while os.getppid() == parent:
        time.sleep(WATCH_S)
    os._exit(0)


if __name__ == "__main__":
    main()
