"""Curves of searches: speed relative to the best known program, against trials, a panel for each comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from experiments import statistics
from experiments.common import style

POINTS = 40
RESAMPLES = 300
COLUMNS = 3
LINES = ("-", "--", ":", "-.")

Panels = Mapping[str, Mapping[str, np.ndarray]]
"""Title -> name -> speeds [tasks, seeds, points] or [tasks, seeds, trials]."""


def draw(panels: Panels, path: Path, x: Sequence[float] | None = None) -> str:
    """Write the figure and return its file name. The points are at `x`, by default 1, 2, .. trials; panels share both axes."""
    with plt.rc_context(style.RC):
        width = 5.2 if len(panels) == 1 else 3.7
        figure, grid = style.panels(len(panels), COLUMNS, (width, 3.0), sharex=True, sharey=True)
        for axes, (title, curves) in zip(grid.flat, panels.items(), strict=False):
            _panel(axes, title, curves, x)
        figure.supxlabel("trials", fontsize=9)
        figure.supylabel("speed over the best known's", fontsize=9)
        return style.save(figure, path)


def _panel(axes: Axes, title: str, curves: Mapping[str, np.ndarray], x: Sequence[float] | None) -> None:
    """Draw geometric means over tasks and seeds with their intervals."""
    looks = style.look(list(curves))
    for number, (name, values) in enumerate(curves.items()):
        place = np.arange(1, values.shape[2] + 1) if x is None else np.asarray(x)
        kept = np.unique(np.linspace(0, len(place) - 1, POINTS).astype(int))
        logs = np.log(values[..., kept])
        low, high = statistics.bootstrap(_mean, logs, resamples=RESAMPLES)
        colour, _ = looks[name]
        axes.fill_between(place[kept], np.exp(low), np.exp(high), color=colour, alpha=0.12, linewidth=0)
        axes.plot(place[kept], np.exp(_mean(logs)), color=colour, linestyle=LINES[number % len(LINES)], linewidth=1.5, label=name)
    axes.set_title(title)
    axes.set_ylim(top=1.02)
    axes.legend(loc="best", fontsize=7.5)


def _mean(logs: np.ndarray) -> np.ndarray:
    """Mean over tasks and seeds."""
    return logs.mean(axis=(0, 1))
