"""Kernels by the unit that computes them, and the statuses of their measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from gensor_gym import operators
from gensor_gym.graph.schedule import Schedule

UNITS = {0: "CUDA cores", 1: "mma.sync", 2: "wgmma"}


def statuses(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Counter[str]]:
    """(unit, data type) -> number of measurements with each status."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        key = UNITS[Schedule.parse(row["schedule"]).knob("tensor_core")], operators.parse(row["operator"]).dtype
        counts.setdefault(key, Counter())[row["status"]] += 1
    return counts
