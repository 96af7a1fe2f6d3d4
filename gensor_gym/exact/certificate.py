"""Certificates: the optimum of a task's space under the analytic model, and the work that proves it, as JSON lines."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gensor_gym.foreign import parse_object, read_lines
from gensor_gym.graph.schedule import Schedule

METHODS = ("enumeration", "branch and bound")
_COUNT, _COUNT_OR_NONE, _NUMBER = int, (int, type(None)), (int, float)
_KINDS: dict[str, Any] = {
    **dict.fromkeys(("operator", "hardware", "space", "fingerprint", "method", "latency", "schedule", "bound"), str),
    **dict.fromkeys(("candidates", "visited", "evaluated", "pruned"), _COUNT), "optima": _COUNT_OR_NONE, "seconds": _NUMBER,
}  # fmt: skip
"""Field of a certificate -> accepted types in a file."""
_WORDS = {str: "text", _COUNT: "a number from 0", _COUNT_OR_NONE: "a number from 0, or null", _NUMBER: "seconds from 0"}


@dataclass(frozen=True)
class Certificate:
    """The proved shortest time of a task's programs under the analytic model, with a program that takes it."""

    operator: str
    hardware: str
    space: str
    fingerprint: str
    method: str
    latency: str
    """Seconds of the fastest legal program, as a hexadecimal float: exact to the last bit."""
    schedule: str
    """Text of a schedule with this latency."""
    optima: int | None
    """Number of schedules with this latency, counted with a tile for every level; None if there are too many to count."""
    candidates: int
    """Number of combinations of tiles, virtual threads and knobs in the space, legal or not."""
    visited: int
    """Number of nodes that the search visited: partial programs whose next tile was fixed, or programs if all were enumerated."""
    evaluated: int
    """Number of programs that the model evaluated."""
    pruned: int
    """Number of nodes that the search left out because no program below them is faster."""
    bound: str
    """Proved lower bound on the seconds of every legal program, as a hexadecimal float: `latency` after a complete proof."""
    seconds: float
    """Processor seconds of the search without compilation."""

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown method of proof."""
        if self.method not in METHODS:
            raise ValueError(f"no method {self.method!r}: expected one of {METHODS}")

    @property
    def optimum(self) -> float:
        """Seconds of the fastest legal program by the model."""
        return float.fromhex(self.latency)

    @property
    def best(self) -> Schedule:
        """The schedule that takes `optimum` seconds."""
        return Schedule.parse(self.schedule)

    @property
    def key(self) -> tuple[str, str, str]:
        """The task as three texts: operator, hardware and space."""
        return self.operator, self.hardware, self.space

    def to_json(self) -> str:
        """Return the certificate as one line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Certificate:
        """Read a line that `to_json` wrote. ValueError names missing or unknown fields and invalid values."""
        data = parse_object(line)
        expected = {field.name for field in dataclasses.fields(cls)}
        if set(data) != expected:
            raise ValueError(f"a certificate has the fields {sorted(expected)}, not {sorted(data)}")
        for name, kinds in _KINDS.items():
            if not isinstance(data[name], kinds) or isinstance(data[name], bool) or kinds is not str and (data[name] or 0) < 0:
                raise ValueError(f"a certificate's {name} is {data[name]!r}; expected {_WORDS[kinds]}")
        found = cls(**data)
        for name in ("latency", "bound"):
            if not 0 < _seconds(data[name]) < math.inf:
                raise ValueError(f"a certificate's {name} is {data[name]!r}; expected seconds as a hexadecimal float")
        return found


def _seconds(text: str) -> float:
    """Return the value of a hexadecimal float; 0 if it is invalid."""
    try:
        return float.fromhex(text)
    except (OverflowError, ValueError):
        return 0.0


def read_certificates(path: Path) -> list[Certificate]:
    """Read all certificates in a file of JSON lines. A missing file has none."""
    if not path.exists():
        return []
    return [_at(path, number, line) for number, line in read_lines(path)]


def _at(path: Path, number: int, line: str) -> Certificate:
    """Return the certificate in a line of a file. ValueError names file and line."""
    try:
        return Certificate.from_json(line)
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: {error}") from error


def append_certificate(path: Path, certificate: Certificate) -> None:
    """Add a certificate as one line to a file. File and folder are created if they are missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(certificate.to_json() + "\n")
