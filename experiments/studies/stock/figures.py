"""Learning curves of stock learners, and their regrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from experiments.common import style
from experiments.studies.figures import DASHES, with_legend

AIM, LEAST = 10.0, 0.5
"""Per cent of regret: the aim, and the least that bars show."""


def curves(lines: dict[str, list[dict[str, Any]]], summary: dict[str, Any], folder: Path) -> str:
    """Mean regret of training episodes over processor seconds; returns the file's name."""
    learned = [name for name, one in summary["agents"].items() if one["seconds"]]
    figure, axes = plt.subplots(figsize=(7.4, 4.4))
    for name, (colour, marker) in style.look(learned).items():
        for line in lines[name]:
            points = np.array([[p[0], 100 * p[3]] for p in line["curve"] if p[3] is not None]).reshape(-1, 2)
            axes.plot(*points.T, color=colour, marker=marker, markevery=8, markersize=4, linewidth=1.4, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("processor seconds of learning, one thread")
    axes.set_ylabel("mean regret of training episodes, %")
    return with_legend(figure, axes, folder / "curves.png")


def regrets(summary: dict[str, Any], folder: Path) -> str:
    """Regret on the test part, of the most probable and of the best episode; returns the file's name."""
    names = list(summary["agents"])
    figure, axes = plt.subplots(figsize=(7.4, 0.34 * len(names) + 1.2))
    for offset, key, colour, label in (
        (-0.19, "first", style.PALETTE[5], "most probable episode"),
        (0.19, "best", style.PALETTE[0], f"best of {summary['programs']}"),
    ):  # fmt: skip
        found = [summary["agents"][name][key] for name in names]
        mean, low, high = (np.maximum(LEAST, [100 * one[part] for one in found]) for part in ("mean", "low", "high"))
        places = np.arange(len(names)) + offset
        axes.barh(places, mean, height=0.36, color=colour, label=label)
        axes.errorbar(mean, places, xerr=[mean - low, high - mean], fmt="none", ecolor=style.INK, elinewidth=0.8)
    axes.axvline(AIM, color=style.INK, linestyle=DASHES, linewidth=0.9)
    axes.set_xscale("log")
    axes.set_yticks(np.arange(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("IQM regret on operators not learned on, %")
    return with_legend(figure, axes, folder / "regrets.png")
