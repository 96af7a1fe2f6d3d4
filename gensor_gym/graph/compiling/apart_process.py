"""The compile server: `python -m gensor_gym.graph.compiling.apart_process PARENT`.

Each line of standard input names a function and argument types; a byte on standard output reports that it is compiled. The server
ends when idle for a while, at the end of standard input, or when its parent has ended.
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
"""Seconds without a request after which the server ends."""
WATCH_S = 0.2
"""Seconds between two checks that the parent is alive."""


def main() -> None:
    """Run the compile server: compile the functions that standard input names, in order."""
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
        except Exception:  # the parent then compiles the function itself and reports the error
            sys.exit(1)
        os.write(sys.stdout.fileno(), b".")


def _is_something_there(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], IDLE_S)[0])


def _line(descriptor: int) -> bytes:
    """Read one line, byte by byte, so that no part of a later line is consumed. Return b"" at the end of the input."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            return b""
        line += byte
    return line


def _end_with(parent: int) -> None:
    """End the server as soon as the process `parent` has ended; an orphan has another parent."""
    while os.getppid() == parent:
        time.sleep(WATCH_S)
    os._exit(0)


if __name__ == "__main__":
    main()
