"""End a command together with the process that started it.

Otherwise, after a restart, the old and the new command would write to the same files.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from threading import Thread

PARENT = "GENSOR_GYM_PARENT"
"""Environment variable with the id of the parent process, with which the command ends."""
_POLL = 0.5  # seconds


def end_with_parent() -> None:
    """Make this process end when its parent process ends, if $GENSOR_GYM_PARENT is set.

    A thread watches the process whose id the variable has, and ends this process once its parent is another one.
    """
    text = os.environ.pop(PARENT, "")
    if text:
        Thread(target=_watch, args=(int(text),), daemon=True).start()


def end_with_launcher() -> None:
    """Make a worker of a Hydra launcher (joblib) end with its command; a leftover worker would keep its folder locked."""
    if multiprocessing.current_process().name != "MainProcess":
        Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL)
    os._exit(1)
