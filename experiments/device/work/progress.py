"""Lines on the screen while a stage works, each with the time of day and printed at once."""

from __future__ import annotations

import time

EVERY = 10.0
"""Seconds between two lines of a count."""


def say(text: str) -> None:
    """Print one line, with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


class Progress:
    """Counter of finished things that prints a line every few seconds."""

    def __init__(self, things: str) -> None:
        """Begin at 0; `things` names the counted things."""
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
