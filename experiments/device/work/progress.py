"""Lines about a stage's progress, each with the time of day and printed at once."""

from __future__ import annotations

import time

EVERY = 10.0
"""Seconds between two printed lines of a counter."""


def say(text: str) -> None:
    """Print one line, with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


class Progress:
    """Counter of finished things that prints a line with their rate every few seconds."""

    def __init__(self, things: str) -> None:
        """Begin at 0; `things` names what is counted."""
        self._things, self._count = things, 0
        self._begin = self._said = time.monotonic()

    def count(self, about: str = "") -> None:
        """Count one more; if a line is due, print it, with `about` at its end."""
        self._count += 1
        now = time.monotonic()
        if now - self._said >= EVERY:
            self._said = now
            rate = self._count / (now - self._begin)
            say(f"{self._count} {self._things}, {rate:.1f} a second" + (f"; {about}" if about else ""))
