"""A matrix of regrets as a heat map: logarithmic colours, every number written in its field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm

from experiments.common import style


@dataclass(frozen=True)
class HeatMap:
    """Per cent of regret, float64 [rows, columns], nan for a field that stays empty."""

    values: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str]
    title: str
    below: str
    """Label of the columns' axis."""
    bold: frozenset[tuple[int, int]]
    """Fields (row, column) that stand out."""
    gaps: Sequence[int]
    """Rows that a gap stands above."""
    size: tuple[float, float]
    """Inches."""
    least: float
    """Per cent below which a colour is no paler."""
    white_above: float
    """Per cent above which numbers are written in white."""
    unit: str = ""
    """Behind every number."""

    def draw(self, path: Path) -> str:
        """Write the figure; returns the file's name."""
        with plt.rc_context({**style.RC, "axes.grid": False}):
            figure, axes = plt.subplots(figsize=self.size)
            colours = LogNorm(self.least, max(100.0, float(np.nanmax(self.values))))
            image = axes.imshow(np.maximum(self.values, self.least), cmap="viridis_r", norm=colours, aspect="auto")
            for i, j in zip(*np.nonzero(~np.isnan(self.values)), strict=True):
                weight = "bold" if (i, j) in self.bold else "normal"
                colour = "white" if self.values[i, j] > self.white_above else style.INK
                text = f"{self.values[i, j]:.1f}{self.unit}"
                axes.text(j, i, text, ha="center", va="center", color=colour, fontweight=weight)
            for row in self.gaps:
                axes.axhline(row - 0.5, color="white", linewidth=4)
            axes.set_xticks(range(len(self.columns)), self.columns)
            axes.set_yticks(range(len(self.rows)), self.rows)
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            axes.set_xlabel(self.below)
            axes.set_title(self.title)
            figure.colorbar(image, ax=axes, format=f"%g{self.unit.replace('%', '%%')}", fraction=0.04)
            return style.save(figure, path)
