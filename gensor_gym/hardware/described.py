"""Machines as JSON: how a table of timings says where it was recorded, and how that machine is had again elsewhere.

A folder `gensor_gym/recordings/<name>` holds the tables recorded on one machine and, as `hardware.json`, the machine.
"""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any

from gensor_gym.hardware.types import Hardware, MemoryLevel

RECORDINGS = Path(__file__).resolve().parents[1] / "recordings"
FILE = "hardware.json"


def to_json(hw: Hardware) -> str:
    """The machine as JSON text that `from_json` reads back."""
    return json.dumps(dataclasses.asdict(hw), indent=1) + "\n"


def from_json(text: str) -> Hardware:
    """The machine that `to_json` wrote; ValueError for text that describes none."""
    try:
        value: dict[str, Any] = json.loads(text)
        value["peak"] = tuple((dtype, rate) for dtype, rate in value["peak"])
        value["tensor_peak"] = tuple((dtype, rate) for dtype, rate in value.get("tensor_peak", ()))
        value["memory"] = tuple(MemoryLevel(**level) for level in value["memory"])
        return Hardware(**value)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no machine: {text[:60]!r} ({error})") from error


def recorded_names() -> tuple[str, ...]:
    """Machines that tables shipped with the package were recorded on."""
    return tuple(sorted(path.parent.name for path in RECORDINGS.glob(f"*/{FILE}")))


def recorded_machine(name: str) -> Hardware:
    """One of `recorded_names()`."""
    return _read(RECORDINGS / name / FILE)


@cache
def _read(path: Path) -> Hardware:
    """A machine from its file."""
    return from_json(path.read_text(encoding="utf-8"))
