"""The winner of each operator of a comparison: a sentence with its verdict, its schedule, and the source of its kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents.runs.sheets.cells import factor, percent, spread
from gensor_gym import hardware
from gensor_gym.codegen.build import generate
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.legality import graph_of
from gensor_gym.operators import parse


def winner(summary: Mapping[str, Any], operator: str) -> Mapping[str, Any] | None:
    """Return the row of an operator's fastest kernel; None if no search found a kernel."""
    rows = [row for row in summary["rows"] if row["operator"] == operator and row["gap_to_best"]]
    return min(rows, key=lambda row: row["gap_to_best"]["median"], default=None)


def level(summary: Mapping[str, Any], best: Mapping[str, Any]) -> list[str]:
    """Return the labels of the searches of an operator whose interval of the gap does not tell them from its winner."""
    rows = [row for row in summary["rows"] if row["operator"] == best["operator"] and row["gap_to_best"] and row is not best]
    return [row["label"] for row in rows if row["gap_to_best"]["low"] <= 1.0]


def sentence(summary: Mapping[str, Any], operator: str) -> str:
    """Return an operator's verdict: strategy, time and speed over torch of the fastest kernel, and ties with it."""
    best = winner(summary, operator)
    if best is None:
        return "No search found a kernel."
    torch = ""
    if best["over_torch"]:
        torch = f", {factor(best['over_torch']).text} the speed of torch ({best['verdict']})"
    others = level(summary, best)
    tied = f" Not told apart from it: {', '.join(others)}." if others else ""
    return f"Fastest: {best['label']}, {spread(best['retimed']).text}{torch}.{tied}"


def overall_sentence(summary: Mapping[str, Any]) -> str:
    """Return the verdict over all operators: the strategy with the least mean gap to the best; empty with one strategy."""
    lines = [line for line in summary["strategies"] if line["gap_to_best"] and line["timed"] == line["jobs"]]
    if len(lines) < 2:
        return ""
    best = min(lines, key=lambda line: line["gap_to_best"])
    gap = percent(best["gap_to_best"] - 1, sign=True).text
    return f"**Least gap to the best kernels over all operators: `{best['strategy']}`** ({gap} in the geometric mean)."


def source(summary: Mapping[str, Any], best: Mapping[str, Any]) -> str:
    """Return the source of a winner's kernel, as this version writes it for the comparison's machine.

    It is empty if the operator, the schedule or the machine is not known here.
    """
    try:
        operator, machine, schedule = parse(best["operator"]), hardware.get(summary["hardware"]), Schedule.parse(best["schedule"])
        legal = graph_of(operator, machine).is_legal_once(schedule)
        return generate(operator, schedule, machine).source if legal else ""
    except (KeyError, TypeError, ValueError):
        return ""
