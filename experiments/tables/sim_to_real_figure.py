"""Figures of the sim-to-real report: measured against predicted time, and the cost of the model's first choices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from experiments.benches.model import COEFFICIENTS
from experiments.common import style
from experiments.tables.recorded import Recorded, regret_of_first, regret_of_random

BEFORE, AFTER, TIED = style.PALETTE[7], style.PALETTE[0], style.PALETTE[1]
COLUMNS = 5


def draw_times(recorded: list[Recorded], coefficients: np.ndarray, path: Path) -> str:
    """Draw measured against predicted seconds of every kernel, a panel for each operator; return the file name."""

    def panel(axes: Axes, table: Recorded) -> None:
        seconds, before = table.seconds, table.sample.predicted()
        after = table.sample.with_values(COEFFICIENTS, coefficients).predicted()
        for predicted, colour in ((before, BEFORE), (after, AFTER)):
            axes.plot(predicted, seconds, ".", color=colour, markersize=3, alpha=0.5, markeredgewidth=0)
        axes.plot(after[table.optimum.tied], seconds[table.optimum.tied], "o", color=TIED, fillstyle="none", markersize=5)
        both = min(before.min(), after.min(), seconds.min()), max(before.max(), after.max(), seconds.max())
        axes.plot(both, both, color=style.INK, linewidth=0.8, alpha=0.5)
        for axis in ("x", "y"):
            style.time_axis(axes, axis)

    marks = [
        Line2D([], [], color=BEFORE, marker=".", linestyle="", label="model"),
        Line2D([], [], color=AFTER, marker=".", linestyle="", label="after the fit on train tables"),
        Line2D([], [], color=TIED, marker="o", fillstyle="none", linestyle="", label="tied with the fastest"),
    ]
    return _panels(recorded, panel, marks, ("predicted", "measured"), path)


def draw_regret(recorded: list[Recorded], coefficients: np.ndarray, path: Path) -> str:
    """Draw the regret of the best of the model's first k over k, a panel for each operator; return the file name."""

    def panel(axes: Axes, table: Recorded) -> None:
        after = table.sample.with_values(COEFFICIENTS, coefficients).predicted()
        k = np.arange(1, len(table.measured) + 1)
        axes.plot(k, 100 * regret_of_random(table), color=style.INK, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.step(k, 100 * regret_of_first(table, table.sample.predicted()), color=BEFORE, linewidth=1.6, where="post")
        axes.step(k, 100 * regret_of_first(table, after), color=AFTER, linewidth=1.3, where="post")
        axes.axhspan(0, 100 * table.optimum.floor, color=TIED, alpha=0.15, linewidth=0)
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=1.0, linscale=0.6)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")

    marks = [
        Line2D([], [], color=BEFORE, label="model"),
        Line2D([], [], color=AFTER, label="after the fit on train tables"),
        Line2D([], [], color=style.INK, linestyle=(0, (4, 3)), label="kernels drawn at random, expected"),
        plt.Rectangle((0, 0), 1, 1, color=TIED, alpha=0.15, label="noise floor"),
    ]
    return _panels(recorded, panel, marks, ("kernels measured", "regret of the best"), path)


def _panels(
    recorded: list[Recorded], panel: Callable[[Axes, Recorded], None], marks: list, labels: tuple[str, str], path: Path
) -> str:
    """Draw a grid of panels with one legend; return the file name."""
    with plt.rc_context(style.RC):
        figure, grid = style.panels(len(recorded), COLUMNS, (3.3, 2.9), 0.5)
        for axes, table in zip(grid.flat, recorded, strict=False):
            panel(axes, table)
            axes.tick_params(labelsize=7)
            axes.set_title(f"{style.short_operator(table.operator)}\n{table.part}", fontsize=7.5)
        for axes in grid[:, 0]:
            axes.set_ylabel(labels[1])
        for axes in grid.flat[max(0, len(recorded) - grid.shape[1]) : len(recorded)]:  # the lowest panel of every column
            axes.set_xlabel(labels[0])
        figure.legend(handles=marks, loc="outside upper center", ncols=len(marks))
        return style.save(figure, path)
