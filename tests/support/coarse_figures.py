"""Figures drawn coarsely, where a test asks whether they are there and not how they look: `pytestmark = COARSE_FIGURES`.

Setting text takes most of the time, and a figure that is trimmed is laid out twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

COARSE_FIGURES = pytest.mark.usefixtures("coarse_figures")


@pytest.fixture(scope="module")
def coarse_figures() -> Iterator[None]:
    """For the tests of a module figures are saved with few pixels and are not trimmed."""
    from matplotlib.figure import Figure

    plain = Figure.savefig

    def savefig(self: Figure, *given: Any, **options: Any) -> None:
        options.pop("bbox_inches", None)
        plain(self, *given, **options | {"dpi": 20})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", savefig)
        yield
