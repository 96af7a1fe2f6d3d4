"""Certificates: the optimum of a task's space under the analytic model, and the work that proves it, as JSON lines."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from gensor_gym.graph.schedule import Schedule

METHODS = ("enumeration", "branch and bound")


@dataclass(frozen=True)
class Certificate:
    """The optimum of a task."""

    operator: str
    hardware: str
    space: str
    fingerprint: str
    method: str
    latency: str
    """Seconds of the fastest legal program, as a hexadecimal float: exact to the last bit."""
    schedule: str
    """Text of one that takes so long."""
    optima: int | None
    """Schedules with all levels opened that take exactly so long; None where they were too many to count."""
    candidates: int
    """Combinations of tiles, virtual threads and knobs of the space, before legality."""
    visited: int
    """Nodes looked at: partial programs whose next tile was fixed, or programs where all were enumerated."""
    evaluated: int
    """Programs that the model evaluated."""
    pruned: int
    """Nodes left out because nothing below them is faster."""
    bound: str
    """Seconds that no legal program is below when the search has ended; equal to `latency` where that is proved."""
    seconds: float
    """Processor seconds of the search, compilation excluded."""

    def __post_init__(self) -> None:
        """ValueError for a method that there is not."""
        if self.method not in METHODS:
            raise ValueError(f"no method {self.method!r}: expected one of {METHODS}")

    @property
    def optimum(self) -> float:
        """Seconds of the fastest legal program."""
        return float.fromhex(self.latency)

    @property
    def best(self) -> Schedule:
        """A schedule that takes so long."""
        return Schedule.parse(self.schedule)

    @property
    def key(self) -> tuple[str, str, str]:
        """Operator, hardware and space, as text."""
        return self.operator, self.hardware, self.space

    def to_json(self) -> str:
        """One line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Certificate:
        """Read `to_json`; ValueError names fields that are missing or unknown."""
        data = json.loads(line)
        expected = {field.name for field in dataclasses.fields(cls)}
        if set(data) != expected:
            raise ValueError(f"a certificate has the fields {sorted(expected)}, not {sorted(data)}")
        return cls(**data)


def read_certificates(path: Path) -> list[Certificate]:
    """All certificates of a file of JSON lines; a file that is not there has none."""
    if not path.exists():
        return []
    return [Certificate.from_json(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def append_certificate(path: Path, certificate: Certificate) -> None:
    """Add one line to a file, which is made with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(certificate.to_json() + "\n")
