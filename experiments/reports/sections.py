"""Sections of the page: plots and tables of training runs, comparisons and studies."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.runs.sheets.cells import Given, percent_interval
from agents.training import curves
from experiments.comparison.table import COLUMNS, cells
from experiments.reports import plots
from experiments.reports.page import Page, table

HEAD = ("configuration", "seeds", "steps", "last return", "training", "evaluation on validation")
MOST = 60
"""Most tasks in one plot."""


def learning(page: Page, folders: Sequence[Path]) -> str:
    """HTML with a plot and a table of training runs for each hardware model and each recorded kernel."""
    runs = [curves.read_run(folder) for folder in folders]
    parts = []
    for place in sorted({_place(run) for run in runs}):
        groups = curves.group(run for run in runs if _place(run) == place)
        parts += [f"<h3>{html.escape(place)}</h3>", page.plot(plots.learning(groups)), table(HEAD, curves.rows(groups))]
    return "".join(parts)


def _place(run: curves.Run) -> str:
    """The hardware model that a run was trained on, or the kernel whose recordings it was trained on."""
    if "kernel" in run.card:
        return f"recordings of {run.card['kernel']}"
    return str(run.card.get("config", {}).get("env", {}).get("hardware", "hardware not stated"))


def compared(page: Page, found: Mapping[Path, Mapping[str, Any]]) -> str:
    """HTML with plots and a table of all searches of all comparisons; ValueError names an invalid summary."""
    lines: list[list[Given]] = []
    points: list[dict[str, Any]] = []
    for folder, summary in found.items():
        try:
            for row in summary["rows"]:
                shown = cells(row)
                lines.append([row["operator"], *shown, str(row["seed"]), summary["hardware"], summary["device"], str(folder)])
                if row["gap_to_best"]:
                    points.append(_point(row, summary, folder))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{folder}/summary.json is not as experiments.compare writes it ({error!r})") from error
    parts = []
    for hardware in dict.fromkeys(point["hardware"] for point in points):
        mine = [point for point in points if point["hardware"] == hardware]
        tasks = list(dict.fromkeys(point["task"] for point in mine))[:MOST]
        parts += [f"<h3>{html.escape(hardware)}</h3>", page.plot(plots.times([p for p in mine if p["task"] in tasks]))]
    return "".join(parts) + table(("operator", *COLUMNS, "seed", "hardware", "device", "run"), lines)


def _point(row: Mapping[str, Any], summary: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Data of a search for the plot."""
    shown = dict(zip(COLUMNS, cells(dict(row)), strict=True))
    text = {name: cell if isinstance(cell, str) else cell.text for name, cell in shown.items()}
    return {
        "task": str(row["operator"]), "strategy": str(row["strategy"]), "seed": row["seed"], "run": str(folder),
        "gap": row["gap_to_best"], "time": text["time"], "over_torch": text["over torch"], "hardware": str(summary["hardware"]),
    }  # fmt: skip


def study(page: Page, summary: Mapping[str, Any]) -> str:
    """HTML with a plot and a table of a study's regrets by trials or evaluations; ValueError if the summary is malformed."""
    try:
        what = "evaluations" if "evaluations" in summary else "trials"
        counts = [int(count) for count in summary["checkpoints"]]
        found = summary["strategies"]
        by_name = {name: line["regret"] for name, line in found.items()} if isinstance(found, dict) else summary["regret"]["all"]
        rows = [[name, *map(percent_interval, line)] for name, line in by_name.items()]
        return page.plot(plots.regrets(by_name, counts, what)) + table(("strategy", *(f"after {c:,}" for c in counts)), rows)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not as a study writes it ({error!r})") from error
