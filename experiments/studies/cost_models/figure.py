"""Figure of the study of cost models: regret of each learner with its interval, and regret by number of recorded programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from experiments.common import style

SCORE = 1
"""Index, among the scores, of the regret of the first choice."""


def draw(summary: dict[str, Any], path: Path) -> str:
    """Draw the figure from a study's summary, write it to `path`, and return its file name."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.4, 4.2), layout="constrained")
    places = [(split, machine, one) for split, of in summary["ranked"].items() for machine, one in of.items()]
    names = list(places[0][2]["scores"])
    for i, (split, machine, one) in enumerate(places):
        means, ends = _percent([one["scores"][name][SCORE] for name in names])
        at = [k + 0.16 * (i - (len(places) - 1) / 2) for k in range(len(names))]
        left.errorbar(means, at, xerr=ends, fmt=style.MARKERS[i], color=style.PALETTE[i], label=f"{split} held out, {machine}")
    left.set_yticks(range(len(names)), names)
    left.invert_yaxis()
    left.set_xlim(left=0)
    left.set_xlabel("regret of the first choice, %")
    lines = [(f"{name}, {machine}", of) for machine, one in summary["replays"].items() for name, of in one["scores"].items()]
    for i, (label, points) in enumerate(lines):
        means, ends = _percent(points[:-1])  # the last is the mean over the budgets
        at = [budget * 1.025 ** (i - (len(lines) - 1) / 2) for budget in summary["budgets"]]
        right.errorbar(at, means, yerr=ends, fmt=f"{style.MARKERS[i]}-", color=style.PALETTE[i], label=label, linewidth=1.2)
    right.set_xscale("log")
    right.set_xticks(summary["budgets"], [f"{budget:,}" for budget in summary["budgets"]])
    right.minorticks_off()
    right.set_xlabel("programs recorded")
    right.set_ylabel("regret of the first choice, %")
    for axes in (left, right):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize=7.5)
    return style.save(figure, path)


def _percent(points: Sequence[Mapping[str, float]]) -> tuple[list[float], list[list[float]]]:
    """Return (means, distances) in per cent: distances from each mean to the low and the high end of its interval."""
    ends = [[100 * abs(point[end] - point["mean"]) for point in points] for end in ("low", "high")]
    return [100 * point["mean"] for point in points], ends
