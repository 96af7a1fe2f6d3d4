"""Figures of a comparison: the best time so far by trials and by seconds, and speed-ups with their intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from experiments.common import style

Rows = list[dict[str, Any]]


def draw(summary: dict, trials: Rows, folder: Path) -> list[str]:
    """Draw all figures of a comparison and return their file names; `trials` are rows of results.jsonl."""
    with plt.rc_context(style.RC):
        return [
            _progress(summary, trials, "trial", "measured trials", folder / "best_by_trials.png"),
            _progress(summary, trials, "elapsed_s", "seconds of search", folder / "best_by_seconds.png"),
            _ratios(summary, folder / "speedup.png"),
        ]


def _progress(summary: dict, trials: Rows, field: str, label: str, path: Path) -> str:
    operators = list(summary["operators"])
    looks = style.look([line["strategy"] for line in summary["strategies"]])
    columns = 1 if len(operators) == 1 else 2 if len(operators) <= 6 else 3
    figure, grid = style.panels(len(operators), columns, (7.0 if columns == 1 else 4.6, 2.9), 0.6)
    for axes, operator in zip(grid.flat, operators, strict=False):
        mine = [row for row in trials if row["operator"] == operator]
        _panel(axes, summary["operators"][operator], mine, looks, field)
        axes.set_title(style.short_operator(operator))
    for axes in grid[-1]:
        axes.set_xlabel(label)
    for axes in grid[:, 0]:
        axes.set_ylabel("model latency" if summary["model_only"] else "best time so far")
    figure.legend(handles=_handles(summary, looks), loc="outside upper center", ncols=min(6, len(looks) + 1))
    return style.save(figure, path)


def _panel(axes: Axes, facts: dict, trials: Rows, looks: dict[str, tuple[str, str]], field: str) -> None:
    for (strategy, _), rows in _by_search(trials).items():
        x = np.array([row[field] for row in rows], dtype=float) + (1 if field == "trial" else 0)
        seconds = np.array([row["seconds"] if row["seconds"] is not None else np.inf for row in rows])
        best = np.minimum.accumulate(seconds)
        shown = np.isfinite(best)
        if not shown.any():
            continue
        colour, marker = looks[strategy]
        axes.step(x[shown], best[shown], where="post", color=colour, linewidth=1.7, alpha=0.9, solid_joinstyle="round")
        better = shown & (seconds <= best)
        axes.plot(
            x[better], best[better], marker, color=colour, markersize=4.2, markeredgecolor="white", markeredgewidth=0.5
        )
    if facts["torch"]:
        axes.axhline(facts["torch"]["median"], color=style.INK, linestyle=(0, (4, 3)), linewidth=1.1)
    axes.margins(x=0.03, y=0.12)
    if field == "trial":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    style.time_axis(axes)


def _by_search(trials: Rows) -> dict[tuple[str, int], Rows]:
    found: dict[tuple[str, int], Rows] = {}
    for row in trials:
        found.setdefault((row["strategy"], row["seed"]), []).append(row)
    return {key: sorted(rows, key=lambda row: row["trial"]) for key, rows in found.items()}


def _handles(summary: dict, looks: dict[str, tuple[str, str]]) -> list[Line2D]:
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=5, linewidth=1.7, markeredgecolor="white", label=name)
        for name, (colour, marker) in looks.items()
    ]
    if any(facts["torch"] for facts in summary["operators"].values()):
        handles.append(Line2D([], [], color=style.INK, linestyle=(0, (4, 3)), linewidth=1.1, label="torch"))
    return handles


def _ratios(summary: dict, path: Path) -> str:
    over_torch = any(row["over_torch"] for row in summary["rows"])
    operators = list(summary["operators"])
    looks = style.look([line["strategy"] for line in summary["strategies"]])
    figure, axes = plt.subplots(
        figsize=(8.6, 1.1 + 0.24 * len(looks) * len(operators) + 0.3 * len(operators)), layout="constrained"
    )
    offset = 0.0
    ticks, names = [], []
    for operator in operators:
        rows = [row for row in summary["rows"] if row["operator"] == operator]
        start = offset
        for row in rows:
            _dot(axes, row, over_torch, offset, looks)
            offset += 1.0
        ticks.append((start + offset - 1.0) / 2)
        names.append(style.short_operator(operator).replace("\n    ", "\n"))
        axes.axhline(offset + 0.1, color=style.FAINT, linewidth=0.8)
        offset += 1.2
    axes.set_yticks(ticks, names)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(offset - 1.0, -0.9)
    ratio_axis(axes, "speed-up over torch" if over_torch else "speed relative to the best of this run")
    figure.legend(
        handles=[h for h in _handles(summary, looks) if h.get_label() != "torch"], loc="outside upper center", ncols=6
    )
    return style.save(figure, path)


def _dot(axes: Axes, row: dict, over_torch: bool, y: float, looks: dict[str, tuple[str, str]]) -> None:
    value = row["over_torch"] if over_torch else _inverse(row["gap_to_best"])
    colour, marker = looks[row["strategy"]]
    if value is None:
        axes.annotate(
            row["status"].lower().replace("_", " ") if row["status"] != "DONE" else "no kernel", (0.01, y),
            xycoords=("axes fraction", "data"), va="center", fontsize=7, color=colour,
        )  # fmt: skip
        return
    axes.plot([value["low"], value["high"]], [y, y], color=colour, linewidth=2.2, alpha=0.55, solid_capstyle="round")
    axes.plot(value["median"], y, marker, color=colour, markersize=6, markeredgecolor="white", markeredgewidth=0.6)
    axes.annotate(
        style.number(value["median"]), (value["high"], y), xytext=(6, 0), textcoords="offset points", va="center",
        fontsize=7, color="#555555",
    )  # fmt: skip


def _inverse(value: dict[str, float] | None) -> dict[str, float] | None:
    return value and {"median": 1 / value["median"], "low": 1 / value["high"], "high": 1 / value["low"]}


def ratio_axis(axes: Axes, label: str) -> None:
    """Make the x axis a logarithmic axis of ratios, with a line at 1."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 0.9) / 1.05, max(high, 1.1) * 1.08)
    axes.axvline(1.0, color=style.INK, linestyle=(0, (4, 3)), linewidth=1.1, zorder=1)
    style.ratio_axis(axes, "x")
    axes.set_xlabel(label)
