"""A command that another one started ends with it, however that ended: it would go on writing where the next attempt writes."""

from __future__ import annotations

import multiprocessing
import os
import time
from threading import Thread

PARENT = "GENSOR_GYM_PARENT"
"""Environment variable: the process that a command ends with."""
_POLL = 0.5  # seconds


def end_with_parent() -> None:
    """Watch the process that $GENSOR_GYM_PARENT names, if it does, and end this one when that is no longer its parent."""
    text = os.environ.pop(PARENT, "")
    if text:
        Thread(target=_watch, args=(int(text),), daemon=True).start()


def end_with_launcher() -> None:
    """In a worker of a launcher of Hydra's (joblib): end with the command, or a killed one's tasks would hold their folders."""
    if multiprocessing.current_process().name != "MainProcess":
        Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL)
    os._exit(1)
