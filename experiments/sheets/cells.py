"""Cells of a table: a text, optionally with its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from experiments.common.texts import interval_text, seconds_text


@dataclass(frozen=True)
class Cell:
    """A text for people; `numbers` are (value,) or (value, low, high) for files: seconds, shares, counts, not rounded.

    `short` is the text for a narrow screen, where that leaves something out.
    """

    text: str
    numbers: tuple[float, ...] = ()
    short: str | None = None

    @property
    def narrow(self) -> str:
        """The text for a narrow screen."""
        return self.text if self.short is None else self.short

    def with_word(self, word: str) -> Cell:
        """The cell with a word after its text, however narrow the screen."""
        return Cell(f"{self.text} {word}", self.numbers, f"{self.narrow} {word}")


Given = str | Cell
"""A cell or a text."""
NOTHING = Cell("-")


def as_cell(value: Given) -> Cell:
    """A plain text is a cell without numbers."""
    return value if isinstance(value, Cell) else Cell(value)


def plain(value: object) -> Cell:
    """Any value of a record: whole and large numbers with commas between thousands, others with four digits."""
    if value is None:
        return NOTHING
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Cell(str(value))
    return Cell(number(value), (value,))


def number(value: float) -> str:
    """Whole and large numbers with commas between thousands, others with four digits."""
    return f"{value:,.0f}" if isinstance(value, int) or 1e3 <= abs(value) < 1e10 else f"{value:.4g}"


def seconds(value: float | None) -> Cell:
    """A duration."""
    return NOTHING if value is None else Cell(seconds_text(value), (value,))


def count(value: float) -> Cell:
    """A number of things, or a mean of such."""
    return Cell(f"{value:,.0f}", (value,))


def percent(value: float, digits: int = 1, sign: bool = False) -> Cell:
    """A share; its number is the share itself."""
    return Cell(f"{100 * value:{'+' if sign else ''}.{digits}f} %", (value,))


def percent_interval(value: Mapping[str, float], digits: int = 1) -> Cell:
    """A mean share with its interval."""
    text = interval_text(dict(value), digits)
    return Cell(text, (value["mean"], value["low"], value["high"]), text.partition(" [")[0])


def spread(value: Mapping[str, float]) -> Cell:
    """A median of seconds with its interval in one unit; the interval only where there is one."""
    short = seconds_text(value["median"])
    numbers = (value["median"], value["low"], value["high"])
    if value["low"] == value["high"]:
        return Cell(short, numbers)
    size = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[short.split(" ")[-1]]
    low, high = (f"{value[end] / size:.3g}" for end in ("low", "high"))
    return Cell(f"{short} [{low}, {high}]", numbers, short)


def factor(value: Mapping[str, float] | None) -> Cell:
    """A speed-up with its interval."""
    if value is None:
        return NOTHING
    short = f"{value['median']:.2f}x"
    return Cell(f"{short} [{value['low']:.2f}, {value['high']:.2f}]", (value["median"], value["low"], value["high"]), short)
