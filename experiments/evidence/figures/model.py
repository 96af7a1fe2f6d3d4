"""Figures of the model beside the device: times, and what the first choices of the model cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from experiments.common import style
from experiments.evidence.predictions import Told
from experiments.tables.recorded import regret_of_first, regret_of_random
from experiments.tables.sim_to_real_figure import AFTER, BEFORE, TIED, panels

RINGED = 10
"""Of the model's first choices."""


def times(them: Sequence[Told], path: Path) -> str:
    """Measured seconds against the model's, a panel for each operator; returns the file's name."""

    def panel(axes: Axes, one: Told) -> None:
        seconds = one.recorded.seconds
        axes.plot(one.before, seconds, ".", color=BEFORE, markersize=4, alpha=0.6, markeredgewidth=0)
        first = np.argsort(one.before, kind="stable")[:RINGED]
        axes.plot(one.before[first], seconds[first], "o", color=TIED, fillstyle="none", markersize=6)
        style.model_lines(axes, one.before, seconds)

    marks = [
        Line2D([], [], color=BEFORE, marker=".", linestyle="", label="program"),
        Line2D([], [], color=TIED, marker="o", fillstyle="none", linestyle="", label=f"the model's first {RINGED}"),
        Line2D([], [], color=style.INK, linewidth=0.8, label="model = measured"),
        Line2D([], [], color=style.INK, linestyle=(0, (4, 3)), linewidth=0.9, label="fastest"),
    ]
    return panels(them, panel, marks, ("model, before any fit", "measured on the H100"), path, columns=4)


def regret(them: Sequence[Told], path: Path) -> str:
    """What the best of the model's first k is behind the best, over k, a panel for each operator; returns the file's name."""

    def panel(axes: Axes, one: Told) -> None:
        k = np.arange(1, len(one.before) + 1)
        axes.plot(k, behind(regret_of_random(one.recorded)), color=style.INK, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.step(k, behind(regret_of_first(one.recorded, one.before)), color=BEFORE, linewidth=1.6, where="post")
        axes.step(k, behind(regret_of_first(one.recorded, one.after)), color=AFTER, linewidth=1.3, where="post")
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=1.0, linscale=0.6)
        axes.set_ylim(bottom=0)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:g}")

    marks = [
        Line2D([], [], color=BEFORE, label="model"),
        Line2D([], [], color=AFTER, label="after a fit that saw these programs"),
        Line2D([], [], color=style.INK, linestyle=(0, (4, 3)), label="programs drawn at random, expected"),
    ]
    return panels(them, panel, marks, ("programs measured", "behind the best, %"), path, columns=4)


def behind(regrets: np.ndarray) -> np.ndarray:
    """Regrets as percent that the time is more."""
    more: np.ndarray = 100.0 * np.expm1(regrets)
    return more
