"""Run another program so that it cannot outlive this process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any


def run_group(command: Sequence[str], seconds: float, **settings: Any) -> int | None:
    """Run a program in its own process group; return its exit status (negative for a signal), or None after the time limit.

    The group is killed when the program ends, after `seconds`, and on any exception. `settings` are passed to `subprocess.Popen`.
    OSError if the program cannot be started.
    """
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **settings)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):  # the group has ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
