"""Words on the screen while a stage works: each line has its time, and is there at once."""

from __future__ import annotations

import time

EVERY = 10.0
"""Seconds from one line of a count to the next."""


def say(text: str) -> None:
    """Print one line, with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


class Progress:
    """How many of something are done, said every few seconds."""

    def __init__(self, things: str) -> None:
        """`things` are counted."""
        self._things, self._count = things, 0
        self._begin = self._said = time.monotonic()

    def count(self, about: str = "") -> None:
        """Count one more; `about` is added to the line."""
        self._count += 1
        now = time.monotonic()
        if now - self._said >= EVERY:
            self._said = now
            rate = self._count / (now - self._begin)
            say(f"{self._count} {self._things}, {rate:.1f} a second" + (f"; {about}" if about else ""))
