"""Running another program that never outlives the run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any


def run_group(command: Sequence[str], seconds: float, **settings: Any) -> int | None:
    """Exit status of a program in its own process group, minus the signal that ended it; None after the time limit.

    The group is killed when the program ends, after `seconds`, and on any exception. `settings` are those of `subprocess.Popen`.
    Raises OSError if the program cannot be started.
    """
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **settings)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):  # nothing is left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
