"""The figure of the ranking benchmark: measured time against the model's, a panel for each operator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from experiments.benches.fitting.record import Record
from experiments.common import style
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule

KINDS = {"random": (style.PALETTE[7], "."), "searches": (style.PALETTE[0], "o"), "ranking": (style.PALETTE[4], ".")}


def draw(panels: Sequence[tuple[Record, ConstructionGraph]], top: int, path: Path) -> str:
    """Write the figure and return its name; circles mark the model's first `top` programs."""
    columns = min(4, len(panels))
    lines = math.ceil(len(panels) / columns)
    with plt.rc_context(style.RC):
        figure, grid = plt.subplots(
            lines, columns, figsize=(3.4 * columns, 3.1 * lines + 0.5), squeeze=False, layout="constrained"
        )
        for axes, (record, graph) in zip(grid.flat, panels, strict=False):
            _panel(axes, record, graph, top)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes in grid[:, 0]:
            axes.set_ylabel("measured")
        for axes in grid[-1]:
            axes.set_xlabel("model")
        handles = [Line2D([], [], color=c, marker=m, linestyle="") for c, m in KINDS.values()]
        handles.append(Line2D([], [], color=style.PALETTE[1], marker="o", fillstyle="none", linestyle=""))
        figure.legend(handles, [*KINDS, f"the model's first {top}"], loc="outside upper center", ncols=4)
        return style.save(figure, path)


def _panel(axes: Axes, record: Record, graph: ConstructionGraph, top: int) -> None:
    """Draw one operator; both axes have the same scale."""
    rows = [row for row in record.first() if np.isfinite(row.seconds)]
    model = graph.latencies(graph.stack([Schedule.parse(row.schedule) for row in rows]))
    seconds = np.array([row.seconds for row in rows])
    kinds = np.array([_kind(row.source) for row in rows])
    for kind, (colour, marker) in KINDS.items():
        mine = kinds == kind
        axes.plot(model[mine], seconds[mine], marker, color=colour, markersize=4, alpha=0.7, markeredgewidth=0, linestyle="")
    first = np.argsort(model, kind="stable")[:top]
    axes.plot(model[first], seconds[first], "o", color=style.PALETTE[1], fillstyle="none", markersize=7, linestyle="")
    style.model_lines(axes, model, seconds)
    axes.set_title(style.short_operator(str(record.op)), fontsize=7.5)


def _kind(source: str) -> str:
    return source if source == "random" else "ranking" if source in ("top", "spread") else "searches"
