"""The figure of the kernels suite: every shape's speed-up over torch, and its share of the roofline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from experiments.common import style
from experiments.comparison.figures import ratio_axis
from gensor_gym.measure.stats.intervals import LEVEL


def draw(rows: list[dict[str, Any]], path: Path) -> str:
    """Write the figure and return its name; `rows` are lines of timed shapes. Dots are called kernels, rings isolated kernels."""
    rows = sorted(rows, key=lambda row: row["called"]["over_torch"]["median"])
    with plt.rc_context(style.RC):
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(10.5, 0.9 + 0.27 * len(rows)), sharey=True, layout="constrained", width_ratios=(3, 2)
        )
        for y, row in enumerate(rows):
            value = row["called"]["over_torch"]
            colour = (
                style.PALETTE[2] if value["low"] > 1 else style.PALETTE[1] if value["high"] < 1 else style.PALETTE[7]
            )
            left.plot(
                [value["low"], value["high"]], [y, y], color=colour, linewidth=2.4, alpha=0.5, solid_capstyle="round"
            )
            left.plot(value["median"], y, "o", color=colour, markersize=6, markeredgecolor="white", markeredgewidth=0.6)
            left.plot(row["over_torch"]["median"], y, "o", markersize=5, markerfacecolor="none", markeredgecolor=style.INK)
            left.annotate(
                style.number(value["median"]), (max(value["high"], row["over_torch"]["median"]), y), xytext=(6, 0),
                textcoords="offset points", va="center", fontsize=7, color="#555555",
            )  # fmt: skip
            right.barh(y, 100 * row["of_roofline"], height=0.55, color=style.PALETTE[0], alpha=0.85)
            right.plot(100 * row["roofline_s"] / row["torch"]["median"], y, "|", color=style.INK, markersize=9)
        left.set_yticks(range(len(rows)), [style.plain(row["operator"]) for row in rows], fontsize=7.5)
        left.tick_params(axis="y", length=0)
        left.grid(visible=False, axis="y")
        right.grid(visible=False, axis="y")
        right.tick_params(axis="y", length=0)
        ratio_axis(left, f"over torch: called (dot, {LEVEL} interval), isolated (ring)")
        right.set_xlabel("percent of the roofline (bar), torch (tick)")
        right.set_xlim(0, max(100.0, right.get_xlim()[1]))
        left.set_ylim(-0.7, len(rows) - 0.3)
        return style.save(figure, path)
