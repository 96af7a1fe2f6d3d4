"""Growth of meters during some work, and the energy of the processor's packages by RAPL (Running Average Power Limit)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from gensor_gym.measure.isolation.counters import EVENTS

Found = TypeVar("Found")
METERS = ("energy_j", *EVENTS)
"""Conditions of a trial that say what its sampling has used: joules of the whole device, and events of the worker's threads."""
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


def metered(meters: Callable[[], Mapping[str, float]], work: Callable[[], Found]) -> tuple[Found, dict[str, object]]:
    """Do some work; return its result, and as conditions the growth of each meter meanwhile and `metered_s`, its seconds.

    A meter that cannot be read before or after is left out. Without meters there are no conditions.
    """
    before, began = meters(), time.monotonic()
    found = work()
    seconds, after = time.monotonic() - began, meters()
    used: dict[str, object] = {name: after[name] - before[name] for name in METERS if name in before and name in after}
    return found, used | {"metered_s": seconds} if used else {}


def energy(joules: float | None) -> dict[str, float]:
    """Return a reading of energy as that of a meter; none if it is None."""
    return {} if joules is None else {"energy_j": joules}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdecimal() else None
