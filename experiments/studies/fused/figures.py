"""Regret of searches of fused operators by evaluations of the model and by processor time."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from experiments.common import style
from experiments.studies.fused.scores import Found, Plan

POINTS = 60
SHORTEST = 1e-3
"""Seconds at which the figure begins."""
LEAST = 0.05
"""Per cent below which regrets are not told apart."""


def draw(found: Found, plan: Plan, part: str) -> str:
    """Two panels of one part; the file's name."""
    with plt.rc_context(style.RC):
        figure, panels = plt.subplots(1, 2, figsize=(9.6, 4.0), sharey=True)
        looks = style.look(list(plan.strategies))
        most = max(plan.evaluations) * 4
        evaluations = np.unique(np.geomspace(1, most, POINTS).astype(int)).astype(float)
        seconds = np.geomspace(SHORTEST, plan.budget_s, POINTS)
        for axes, at, column, label in (
            (panels[0], evaluations, 0, "evaluations of the model"), (panels[1], seconds, 2, "processor time in seconds"),
        ):  # fmt: skip
            for name, (colour, marker) in looks.items():
                regret = 100 * found.regrets(plan, name, part, at, column).mean(axis=(0, 1))
                shown = np.maximum(regret, LEAST)
                axes.plot(at, shown, color=colour, marker=marker, markevery=8, markersize=4.5, linewidth=1.6, label=name)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel(label)
        panels[0].set_ylabel("mean regret to the optimum, %")
        panels[0].set_title(f"{part}: {len(found.tasks[part])} operators, {len(plan.seeds)} seeds")
        panels[1].legend(loc="upper right")
        return style.save(figure, plan.output / f"regret_{part.rpartition('/')[2]}.png")
