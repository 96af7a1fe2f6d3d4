"""Cells of a table: a text, optionally with the numbers that it shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agents.runs.texts import interval_text, seconds_text


@dataclass(frozen=True)
class Cell:
    """A cell of a table: a text for people and unrounded `numbers` for files.

    The numbers are (value,) or (value, low, high), as seconds, shares or counts. `short` is a shorter text for a narrow screen,
    or None.
    """

    text: str
    numbers: tuple[float, ...] = ()
    short: str | None = None

    @property
    def narrow(self) -> str:
        """The cell's text for a narrow screen."""
        return self.text if self.short is None else self.short

    def with_word(self, word: str) -> Cell:
        """Return the cell with a word appended to its text and to its short text."""
        return Cell(f"{self.text} {word}", self.numbers, f"{self.narrow} {word}")


Given = str | Cell
"""Type of a cell, or of a text that stands for a cell without numbers."""
NOTHING = Cell("-")


def as_cell(value: Given) -> Cell:
    """Turn a text into a cell without numbers; return a cell unchanged."""
    return value if isinstance(value, Cell) else Cell(value)


def plain(value: object) -> Cell:
    """Make a cell of any value. Whole and large numbers get thousands separators, other numbers four digits."""
    if value is None:
        return NOTHING
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Cell(str(value))
    return Cell(number(value), (value,))


def number(value: float) -> str:
    """Format a number: whole and large numbers with thousands separators, others with four digits."""
    return f"{value:,.0f}" if isinstance(value, int) or 1e3 <= abs(value) < 1e10 else f"{value:.4g}"


def seconds(value: float | None) -> Cell:
    """Make the cell of a duration in seconds; `-` for None."""
    return NOTHING if value is None else Cell(seconds_text(value), (value,))


def count(value: float) -> Cell:
    """Make the cell of a count, or of a mean count, which is shown without decimals."""
    return Cell(f"{value:,.0f}", (value,))


def percent(value: float, digits: int = 1, sign: bool = False) -> Cell:
    """Make the cell of a share, shown in percent. The number of the cell is the share itself."""
    return Cell(f"{100 * value:{'+' if sign else ''}.{digits}f} %", (value,))


def percent_interval(value: Mapping[str, float], digits: int = 1) -> Cell:
    """Make the cell of a mean share with its interval (`mean`, `low`, `high`), shown in percent."""
    text = interval_text(dict(value), digits)
    return Cell(text, (value["mean"], value["low"], value["high"]), text.partition(" [")[0])


def spread(value: Mapping[str, float]) -> Cell:
    """Make the cell of a median in seconds with its interval (`median`, `low`, `high`) in the same unit.

    An interval of length zero is not shown.
    """
    short = seconds_text(value["median"])
    numbers = (value["median"], value["low"], value["high"])
    if value["low"] == value["high"]:
        return Cell(short, numbers)
    size = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[short.split(" ")[-1]]
    low, high = (f"{value[end] / size:.3g}" for end in ("low", "high"))
    return Cell(f"{short} [{low}, {high}]", numbers, short)


def factor(value: Mapping[str, float] | None) -> Cell:
    """Make the cell of a speed-up with its interval (`median`, `low`, `high`); `-` for None."""
    if value is None:
        return NOTHING
    short = f"{value['median']:.2f}x"
    return Cell(f"{short} [{value['low']:.2f}, {value['high']:.2f}]", (value["median"], value["low"], value["high"]), short)
