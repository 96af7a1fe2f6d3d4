"""Every picture twice, for light and for dark pages: drawn once for each shade, in files that end in `_dark` for the second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from experiments.common import style


@dataclass(frozen=True)
class Shade:
    """Colours of one background, as matplotlib writes them."""

    suffix: str
    paper: str
    ink: str
    faint: str
    grid: str
    box: str
    blue: str
    orange: str
    green: str

    @property
    def rc(self) -> dict[Any, Any]:
        """Settings of matplotlib: those of all figures here, in these colours."""
        return style.RC | {
            "figure.facecolor": self.paper, "axes.facecolor": self.paper, "savefig.facecolor": self.paper,
            "text.color": self.ink, "axes.labelcolor": self.ink, "xtick.color": self.faint, "ytick.color": self.faint,
            "axes.edgecolor": self.faint, "grid.color": self.grid,
        }  # fmt: skip


LIGHT = Shade("", "#ffffff", "#1f2933", "#6b7785", "#e4e7eb", "#eef2f6", "#0072B2", "#D55E00", "#009E73")
DARK = Shade("_dark", "#0d1117", "#e6edf3", "#9aa5b1", "#2a313a", "#1c2430", "#56B4E9", "#F08A4B", "#3DCB9F")


def both(path: Path, draw: Callable[[Shade], Figure]) -> None:
    """Write `path` for light pages and its companion for dark ones."""
    for shade in (LIGHT, DARK):
        with plt.rc_context(shade.rc):
            style.save(draw(shade), path.with_stem(path.stem + shade.suffix))
