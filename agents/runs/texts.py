"""Texts of numbers and pages: durations, intervals, p values, Markdown. Tables of results are in `agents.runs.sheets`."""

from __future__ import annotations

import datetime
from collections.abc import Sequence


def now() -> str:
    """Return the current date and time in UTC, in ISO format."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def seconds_text(seconds: float | None) -> str:
    """Format a duration with three significant digits and its unit; `-` for None."""
    if seconds is None:
        return "-"
    if seconds >= 999.5:
        return f"{seconds:,.0f} s"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def interval_text(value: dict[str, float], digits: int, sign: bool = False) -> str:
    """Format a mean share with its interval (`mean`, `low`, `high`), in percent."""
    plus = "+" if sign else ""
    return f"{100 * value['mean']:{plus}.{digits}f} % [{100 * value['low']:.{digits}f}, {100 * value['high']:.{digits}f}]"


def p_text(value: float) -> str:
    """Format a p value: three decimals below 0.1, otherwise two."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the lines of a Markdown table. The first column is aligned left, all other columns right."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def page(lines: Sequence[str], figures: Sequence[str]) -> str:
    """Join lines to a Markdown page that ends with its figures, which are files next to it."""
    shown = [line for name in figures for line in ("", f"![{name}]({name})")]
    return "\n".join([*lines, *shown]) + "\n"
