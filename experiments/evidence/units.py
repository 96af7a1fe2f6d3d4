"""Kernels by the unit that computes them, and how many of them are right."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from agents.runs.texts import table
from gensor_gym import operators
from gensor_gym.graph.schedule import Schedule

UNITS = {0: "CUDA cores", 1: "mma.sync", 2: "wgmma"}
RIGHT = ("OK", "IMPLAUSIBLE")
"""Statuses of kernels with a right answer."""


def lines_by_unit(rows: Sequence[Mapping[str, Any]], name: str, status: str) -> list[str]:
    """Table of the numbers of kernels that are right, that have `status` (under the heading `name`), and that are wrong."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in rows:
        unit = UNITS[Schedule.parse(row["schedule"]).knob("tensor_core")]
        counts[unit, operators.parse(row["operator"]).dtype][row["status"]] += 1
    cells = [
        (unit, dtype, str(sum(count[one] for one in RIGHT)), str(count[status]), str(count["WRONG_ANSWER"]))
        for (unit, dtype), count in sorted(counts.items())
    ]
    return table(("unit", "type", "right", name, "wrong"), cells)
