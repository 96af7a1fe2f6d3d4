"""The command that draws the pictures of README and docs draws those that ship, for light and for dark pages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from PIL import Image

from docs import make_images
from docs.pictures.walk import steps

pytestmark = pytest.mark.thorough
SHIPPED = Path(__file__).resolve().parents[1] / "docs" / "images"


def test_pictures_are_drawn_as_they_ship(tmp_path: Path) -> None:
    make_images.main(tmp_path)
    drawn = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert len(drawn) >= 18 and all((SHIPPED / name).exists() for name in drawn)
    for name in drawn:
        if name.suffix == ".webp":
            with Image.open(tmp_path / name) as moving:
                assert getattr(moving, "n_frames", 1) == len(steps())
        elif "_dark" in name.stem:
            light = name.with_stem(name.stem.removesuffix("_dark"))
            assert np.median(imread(tmp_path / name)[..., :3]) < 0.3 < np.median(imread(tmp_path / light)[..., :3])
