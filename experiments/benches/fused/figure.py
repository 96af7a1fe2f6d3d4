"""The figure of the fused suite: every operator's speed-up over its fastest peer, and its memory throughput."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from experiments.benches.fused import ratios
from experiments.common import style
from experiments.comparison.figures import ratio_axis
from gensor_gym.measure.stats.intervals import LEVEL

NAMES = {"eager": "torch eager", "inductor": "torch.compile", "onnxruntime": "ONNX Runtime"}


def draw(rows: list[dict[str, Any]], threads: int, path: Path) -> str:
    """Write the figure and return its name; `rows` are lines of timed operators. Rings omit torch.compile's call overhead."""
    rows = sorted(rows, key=lambda row: row[ratios.HEADLINE]["median"])
    with plt.rc_context(style.RC):
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(10.5, 0.9 + 0.27 * len(rows)), sharey=True, layout="constrained", width_ratios=(3, 2)
        )
        for y, row in enumerate(rows):
            _speed_up(left, y, row)
            _memory_speed(right, y, row)
        left.set_yticks(range(len(rows)), [row["operator"] for row in rows], fontsize=7.5)
        for axes in (left, right):
            axes.tick_params(axis="y", length=0)
            axes.grid(visible=False, axis="y")
        ends = [row[name][end] for row in rows for name in (ratios.HEADLINE, ratios.HEADLINE_INNER) for end in ("low", "high")]
        left.set_xlim(min(ends), 2 * max(ends))  # with room for the text next to the dots
        ratio_axis(left, f"over the fastest peer as called (dot, {LEVEL} interval), or its code alone (ring)")
        right.set_xlabel(f"GB/s, {threads} thread{'s' * (threads > 1)}: ours (bar), fastest peer (tick)")
        left.set_ylim(-0.7, len(rows) - 0.3)
        return style.save(figure, path)


def _speed_up(axes: Axes, y: int, row: dict[str, Any]) -> None:
    """Draw one operator's dot, interval and ring, with the peer's name."""
    value, inner = row[ratios.HEADLINE], row[ratios.HEADLINE_INNER]["median"]
    colour = style.PALETTE[2] if value["low"] > 1 else style.PALETTE[1] if value["high"] < 1 else style.PALETTE[7]
    axes.plot([value["low"], value["high"]], [y, y], color=colour, linewidth=2.4, alpha=0.5, solid_capstyle="round")
    axes.plot(value["median"], y, "o", color=colour, markersize=6, markeredgecolor="white", markeredgewidth=0.6)
    axes.plot(inner, y, "o", markersize=5, markerfacecolor="none", markeredgecolor=style.INK)
    axes.annotate(
        f"{style.number(value['median'])}  {NAMES[row['best']]}", (max(value["high"], inner), y), xytext=(6, 0),
        textcoords="offset points", va="center", fontsize=7, color="#555555",
    )  # fmt: skip


def _memory_speed(axes: Axes, y: int, row: dict[str, Any]) -> None:
    """Draw the bytes of inputs and outputs per second, ours as a bar and the fastest peer's as a tick."""
    ours = row["bytes_per_second"] / 1e9
    axes.barh(y, ours, height=0.55, color=style.PALETTE[0], alpha=0.85)
    axes.plot(ours / row[ratios.HEADLINE]["median"], y, "|", color=style.INK, markersize=9)
