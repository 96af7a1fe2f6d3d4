"""Stamps that state the origin of numbers that are compared with published numbers."""

from __future__ import annotations

from enum import StrEnum


class Stamp(StrEnum):
    """Origin of our numbers in a table."""

    REPRODUCED = "reproduced"
    REPLICATED = "replicated"
    PREDICTED = "predicted"

    @property
    def meaning(self) -> str:
        """Explanation of the stamp."""
        return MEANINGS[self]


MEANINGS = {
    Stamp.REPRODUCED: "measured here on the device of the published numbers",
    Stamp.REPLICATED: "measured here, published numbers, if any, on another device; ratios compare, times do not",
    Stamp.PREDICTED: "latencies are the analytic model's, no kernel was timed; no claim rests on this table",
}
