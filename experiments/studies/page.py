"""Tables shared by the pages of studies: means with intervals, and differences with p values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agents.runs.sheets.cells import percent_interval
from agents.runs.sheets.sheet import Sheet
from agents.runs.texts import interval_text, p_text, seconds_text, table

Values = Mapping[str, Sequence[dict[str, float]]]
"""Name of a row -> its means with intervals, one for each column."""


def after(seconds: Sequence[float] = (), evaluations: Sequence[int] = ()) -> tuple[str, ...]:
    """Column headings for times in seconds, then for numbers of evaluations."""
    return *map(seconds_text, seconds), *(f"{count} evaluations" for count in evaluations)


def _mean(value: dict[str, float]) -> str:
    """Text of a mean with its interval."""
    return interval_text(value, 1)


def difference(value: Mapping[str, float], turned: bool = False) -> str:
    """Text of a difference with its interval and p value; `turned` reverses its sign."""
    shown = {"mean": -value["mean"], "low": -value["high"], "high": -value["low"]} if turned else dict(value)
    return f"{interval_text(shown, 1, sign=True)}, p {p_text(value['p_holm'])}"


def intervals(head: Sequence[str], values: Values, text: Callable[[dict[str, float]], str] = _mean) -> list[str]:
    """Lines of a Markdown table of means, or of differences if `text` is `difference`, with their intervals."""
    return table(tuple(head), [(name, *map(text, of)) for name, of in values.items()])


def interval_sheet(title: str, head: Sequence[str], values: Mapping[Any, Any], notes: Sequence[str] = ()) -> Sheet:
    """Table of means with intervals. A row's name is a text, or a tuple of texts for the first columns."""
    names = {name: (name,) if isinstance(name, str) else name for name in values}
    return Sheet.of(title, head, [(*names[name], *map(percent_interval, of)) for name, of in values.items()], notes)
