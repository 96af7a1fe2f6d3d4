"""Figures drawn coarsely, where a test asks whether they are there and not how they look: setting text takes most of the time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure


def coarse_figures(patch: pytest.MonkeyPatch) -> None:
    """From here on figures are saved with few pixels and are not trimmed, for which they would be laid out twice."""
    plain = Figure.savefig

    def savefig(self: Figure, path: Path, **_: Any) -> None:
        plain(self, path, dpi=20)

    patch.setattr(Figure, "savefig", savefig)
