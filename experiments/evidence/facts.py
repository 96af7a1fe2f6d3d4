"""Conditions of the runs whose raw files ship, written by hand in `raw/conditions.json` of a folder of results."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.runs.texts import table
from gensor_gym import operators
from gensor_gym.foreign import read_fields
from gensor_gym.graph.schedule import Schedule

RAW = "raw"
FILE = "conditions.json"


@dataclass(frozen=True)
class Facts:
    """Facts about a device and the runs on it, for tables and pages.

    `files` says what each raw file contains and which fixes its code had; `mends` describes the fixes. The fixes of a file are
    null if unknown, which is allowed only for files that no fix affects.
    """

    machine: str
    device: str
    date: str
    driver: str
    cuda: str
    python: str
    cupy: str
    torch: str
    triton: str
    cores: int
    clocks: str
    others: str
    commit: str
    fingerprint: str
    version: str
    mends: Mapping[str, str]
    files: Mapping[str, Mapping[str, Any]]


def read_facts(folder: Path) -> Facts:
    """Read the facts in a folder of results; raise ValueError if they are missing or invalid."""
    path = folder / RAW / FILE
    if not path.is_file():
        raise ValueError(f"no {path}: expected the raw files of runs and what is to be said of them")
    try:
        facts = read_fields(path, Facts)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} does not describe runs: {error}") from error
    if missing := [name for name in facts.files if not (folder / RAW / name).is_file()]:
        raise ValueError(f"{path} names files that are not there: {', '.join(missing)}")
    return facts


# Kernels by the unit that computes them, and how many of them are right.

UNITS = {0: "CUDA cores", 1: "mma.sync", 2: "wgmma"}
RIGHT = ("OK", "IMPLAUSIBLE")
"""Statuses of kernels whose answer is right."""


def lines_by_unit(rows: Sequence[Mapping[str, Any]], name: str, status: str) -> list[str]:
    """Return a Markdown table of kernels by computing unit and data type: how many are right, have a status, or are wrong.

    `status` is the status that is counted, and `name` its column heading.
    """
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in rows:
        unit = UNITS[Schedule.parse(row["schedule"]).knob("tensor_core")]
        counts[unit, operators.parse(row["operator"]).dtype][row["status"]] += 1
    cells = [
        (unit, dtype, str(sum(count[one] for one in RIGHT)), str(count[status]), str(count["WRONG_ANSWER"]))
        for (unit, dtype), count in sorted(counts.items())
    ]
    return table(("unit", "type", "right", name, "wrong"), cells)
