"""The figure of a network's tuning: its time by seconds of search, with a line near the fastest time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from experiments.common import style


def draw(points: Sequence[dict[str, Any]], near: float, title: str, path: Path) -> str:
    """Write the figure, with a line at `near` times the fastest time, and return the file's name."""
    at = [point["searched_s"] for point in points]
    times = [1e3 * point["time_s"]["median"] for point in points]
    low, high = ([1e3 * point["time_s"][edge] for point in points] for edge in ("low", "high"))
    with plt.rc_context(style.RC):
        figure, axes = plt.subplots(figsize=(6.0, 3.4), layout="constrained")
        axes.fill_between(at, low, high, step="post", color=style.PALETTE[0], alpha=0.25, linewidth=0)
        axes.step(at, times, where="post", color=style.PALETTE[0], marker="o", markersize=4)
        axes.axhline(near * min(times), color=style.GREY, linewidth=0.9, linestyle="--")
        axes.annotate(f"{near - 1:.0%} above the fastest", (at[-1], near * min(times)), xytext=(0, 3), textcoords="offset points",
                      ha="right", fontsize=7, color=style.GREY)  # fmt: skip
        style.time_axis(axes, "x")
        axes.set_xlabel("time of search, torch's export included")
        axes.set_ylabel("ms a call")
        axes.set_title(title)
        return style.save(figure, path)
