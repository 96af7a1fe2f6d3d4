"""Regret of policies and searches on machines held out, by processor seconds and evaluations."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.common import style
from experiments.studies.intervals import iqm
from experiments.studies.machines.scores import Found

POINTS, SHORTEST = 40, 1e-3


def draw(found: Found, folder: Path) -> str:
    """Two panels; the file's name."""
    plan = found.plan
    seconds = np.geomspace(SHORTEST, max(plan.seconds), POINTS)
    evaluations = np.unique(np.geomspace(1, max(plan.evaluations), POINTS).astype(int)).astype(float)
    with plt.rc_context(style.RC):
        figure, panels = plt.subplots(1, 2, figsize=(9.6, 4.0), sharey=True)
        parts = (seconds, 2, "processor seconds of a search"), (evaluations, 0, "evaluations of the model")
        for axes, (at, column, label) in zip(panels, parts, strict=True):
            for name, (colour, marker) in style.look(found.names).items():
                broad = 2.4 if name in found.policies else 1.4
                axes.plot(
                    at, 100 * iqm(found.regrets(name, at, column)), color=colour, marker=marker, markevery=8, markersize=4.5,
                    linewidth=broad, label=name,
                )  # fmt: skip
            axes.set_xscale("log")
            axes.set_yscale("symlog", linthresh=1.0, linscale=0.5)
            axes.set_ylim(bottom=0)
            axes.set_xlabel(label)
        panels[0].set_ylabel("IQM regret to the best known, %")
        panels[1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
        return style.save(figure, folder / "regret.png")
