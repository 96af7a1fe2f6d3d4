"""The figure of kernels beside the libraries': one bar for each operator and library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from experiments.common import style

CLOSE = 0.9
"""Of the library's rate, from which a bar is of the better colour."""
Bar = tuple[str, float, bool]
"""What it is of, the library's time over ours, whether the library is a weak opponent."""


def draw(bars: Sequence[Bar], path: Path) -> str:
    """Write the figure, a line for each bar; returns the file's name."""
    with plt.rc_context(style.RC):
        figure, axes = plt.subplots(figsize=(8.2, 0.27 * len(bars) + 0.9))
        places = range(len(bars) - 1, -1, -1)
        for y, (_, ratio, weak) in zip(places, bars, strict=True):
            colour = style.PALETTE[7] if weak else style.PALETTE[2] if ratio >= CLOSE else style.PALETTE[1]
            axes.barh(y, ratio, color=colour, height=0.62)
            label = f"{ratio:.2f}" + (" (weak opponent)" if weak else "")
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
            axes.annotate(label, (ratio, y), (4, 0), textcoords="offset points", va="center", fontsize=7.5, bbox=box)
        axes.set_yticks(list(places), [name for name, _, _ in bars], fontsize=7.5)
        axes.axvline(1.0, color=style.INK, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.set_xscale("log", base=2)
        axes.set_xlim(0.2, 8)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("library's time / ours on the H100 (above 1: ours is faster)")
        return style.save(figure, path)
