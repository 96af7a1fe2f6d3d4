"""What a study of searches of fused operators found, as a page."""

from __future__ import annotations

from typing import Any

from experiments.common.texts import interval_text, page, seconds_text, table
from experiments.sheets.cells import percent_interval
from experiments.sheets.sheet import Sheet
from gensor_gym.measure.stats.intervals import LEVEL


def markdown(summary: dict[str, Any], figures: list[str]) -> str:
    """The summary as a page."""
    least, most = (seconds_text(value) for value in summary["certain_s"])
    lines = [
        "# Searches of fused operators by the model", "",
        f"Space `{summary['space']}` on the model of {summary['hardware']}: no kernel was timed. Mean of log(T / T*) over tasks "
        f"and {len(summary['seeds'])} seeds, in brackets {LEVEL} intervals of a bootstrap over tasks and seeds. T* is certain: "
        f"each space was gone through as a whole, which takes {least} to {most} of processor time here. Seconds are processor "
        f"time of one thread of {summary['processor']}, the environment's table among them; by the clock a search took "
        f"{summary['wall_over_processor']:.2f} times as long, in the median. Neither seconds nor evaluations cut the other. "
        f"Fingerprint {summary['fingerprint']}. {summary['date']}.", "",
    ]  # fmt: skip
    for name, cost in summary["training"].items():
        lines += [f"`{name}` was trained for {cost['steps']:,} steps in {cost['seconds']:.0f} s of wall time.", ""]
    asked = ", ".join(f"{name} {least:,} and {median:,}" for name, (least, median) in summary["asked"].items())
    lines += [f"Evaluations of a search, the least and the median: {asked}.", ""]
    for part, found in summary["parts"].items():
        head = ("search", *(f"{n} evaluations" for n in summary["evaluations"]), *map(seconds_text, summary["seconds"]))
        rows = [
            (name, *(interval_text(value, 1) for value in (*values["evaluations"], *values["seconds"])))
            for name, values in found.items()
        ]
        lines += [f"## {part}", "", f"{len(summary['tasks'][part])} operators.", "", *table(head, rows), ""]
    return page(lines, figures)


def sheet(summary: dict[str, Any]) -> Sheet:
    """Mean regrets after evaluations, by part."""
    head = ("part", "search", *(f"{n} evaluations" for n in summary["evaluations"]))
    rows = [
        (part, name, *(percent_interval(value) for value in values["evaluations"]))
        for part, found in summary["parts"].items() for name, values in found.items()
    ]  # fmt: skip
    return Sheet.of("mean regret by the model", head, rows)
