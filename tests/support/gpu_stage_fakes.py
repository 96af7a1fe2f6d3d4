"""Stages that behave and misbehave, for tests of the runner. Nothing here needs a device."""

from __future__ import annotations

import os
import signal
import time

from experiments.device.context import Context

FILE = "fake.jsonl"


def good(context: Context) -> dict[str, object]:
    """Ends well."""
    return {"hardware": context.hardware, "seconds": context.seconds}


def raises(context: Context) -> dict[str, object]:
    """An error of the stage's own, each time it is tried."""
    raise ValueError(f"attempt of {context.run} goes wrong")


def hangs(context: Context) -> dict[str, object]:
    """Writes two rows and never returns; nor does its child, which is in its group."""
    journal = context.journal(FILE)
    journal.put("a", {"value": 1})
    journal.put("b", {"value": 2})
    child = os.fork()
    context.path("pid").write_text(str(child or os.getpid()))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(60)


def dies_at_one(context: Context) -> dict[str, object]:
    """The process is killed by its third item, as a driver might; the next attempt goes on behind it."""
    journal = context.journal(FILE)
    for number in range(5):
        key = str(number)
        if journal.pending(key):
            journal.begin(key)
            if number == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            journal.put(key, {"value": number})
    return digest(context)


def waits(context: Context) -> dict[str, object]:
    """Works until its time is out, as real stages do."""
    done = 0
    while context.left > 0:
        time.sleep(0.05)
        done += 1
    return {"done": done}


def digest(context: Context) -> dict[str, object]:
    """What the rows say, for stages that were killed too."""
    return {"rows": [row["key"] for row in context.rows(FILE)]}
