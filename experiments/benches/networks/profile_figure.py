"""The figure of a profile: kernels in order, and totals of equal kernels, with their floors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from experiments.benches.networks.profiled import by_kernel
from experiments.common import style

MOST = 16
"""Largest number of different kernels shown by name."""
LONGEST = 64
"""Largest length of a kernel's text in characters."""


def draw(rows: Sequence[dict[str, Any]], title: str, path: Path) -> str:
    """Write the figure of a network's steps; returns the file's name."""
    groups = by_kernel(rows)[:MOST]
    with plt.rc_context(style.RC):
        figure, (top, below) = plt.subplots(
            2, 1, figsize=(10.5, 3.6 + 0.3 * len(groups)), layout="constrained", height_ratios=(2.4, 0.8 + 0.3 * len(groups))
        )
        _in_order(top, rows)
        top.set_title(title)
        _together(below, groups)
        return style.save(figure, path)


def _in_order(axes: Axes, rows: Sequence[dict[str, Any]]) -> None:
    """Draw the microseconds of every step."""
    steps = np.arange(len(rows))
    axes.bar(steps, [1e6 * row["in_context_s"]["median"] for row in rows], 0.85, color=style.PALETTE[0], label="in context")
    axes.scatter(steps, [1e6 * row["isolated_s"] for row in rows], s=9, color=style.PALETTE[1], zorder=3, label="alone")
    floors = [1e6 * max(row["flops_floor_s"], row["bytes_floor_s"]) for row in rows]
    axes.hlines(floors, steps - 0.42, steps + 0.42, color=style.INK, linewidth=1.2, zorder=3, label="floor")
    axes.set_xlim(-0.8, len(rows) - 0.2)
    axes.set_ylabel("µs")
    axes.set_xlabel("kernels in their order")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=3)


def _together(axes: Axes, groups: Sequence[dict[str, Any]]) -> None:
    """Draw the total milliseconds of equal kernels, slowest first."""
    for y, row in enumerate(groups):
        axes.barh(y, 1e3 * row["in_context_s"], 0.6, color=style.PALETTE[0])
        axes.plot(1e3 * row["isolated_s"], y, "o", color=style.PALETTE[1], markersize=4)
        floor = 1e3 * max(row["flops_floor_s"], row["bytes_floor_s"])
        axes.plot([floor, floor], [y - 0.36, y + 0.36], color=style.INK, linewidth=1.4)
        axes.annotate(
            f"{100 * row['share']:.0f} %", (1e3 * max(row["in_context_s"], row["isolated_s"]), y), xytext=(6, 0),
            textcoords="offset points", va="center", fontsize=7, color=style.GREY,
        )  # fmt: skip
    axes.set_yticks(range(len(groups)), [label(row) for row in groups], fontsize=7)
    axes.set_ylim(len(groups) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.08)
    axes.set_xlabel("ms of all that are equal: in context (bar), alone (dot), floor (line)")


def label(row: dict[str, Any]) -> str:
    """Count and name of equal kernels: an operator's text, or for a fused operator the module's name of its first operation."""
    text = f"fused: {row['first']}" if row["computation"].startswith("fused@") else style.plain(row["computation"])
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 2]}.."
    return f"{row['times']} x {text}"
