"""Energy that the processor's packages have used, from the counters of RAPL (Running Average Power Limit) that Linux shows."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")
PLACE = Path("/sys/devices/virtual/powercap")
"""Folder of the kernel's power capping framework. Its files are often readable by the administrator only."""


class Rapl:
    """Sums the energy counters of all packages. Without counters, or the right to read them, there is no sum."""

    def __init__(self, place: Path = PLACE) -> None:
        """Find the packages: domains such as intel-rapl:0, which AMD's processors have, too; no parts such as intel-rapl:0:1."""
        packages = sorted(place.glob("*-rapl/*-rapl:*"))
        self._packages = [folder for folder in packages if _text(folder / "name").startswith("package")]
        self._ranges = [_number(folder / "max_energy_range_uj") for folder in self._packages]
        self._last: list[int] | None = None
        self._turns = [0] * len(self._packages)

    def joules(self) -> float | None:
        """Return the energy in joules since a fixed time in the past; None if a counter cannot be read.

        A counter begins again at zero after its range, which takes at least half a minute. Differences of two calls closer than
        that are right.
        """
        counts = [_number(folder / "energy_uj") for folder in self._packages]
        known = [count for count in counts if count is not None]
        if not known or len(known) < len(counts):
            return None
        for place, count in enumerate(known):
            if self._last is not None and count < self._last[place]:
                self._turns[place] += 1
        self._last = known
        return sum(count + turns * (span or 0) for count, turns, span in zip(known, self._turns, self._ranges, strict=True)) / 1e6


def metered(joules: Callable[[], float | None], work: Callable[[], Found]) -> tuple[Found, dict[str, object]]:
    """Do some work; return its result, and the conditions `energy_j` (joules meanwhile) and `energy_s` (its seconds).

    Without a reading before and after, there are no conditions.
    """
    before, began = joules(), time.monotonic()
    found = work()
    seconds, after = time.monotonic() - began, joules()
    return found, {} if before is None or after is None else {"energy_j": after - before, "energy_s": seconds}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdecimal() else None
