"""Figures share one style, light and dark; its colours are told apart with any kind of colour vision."""

from __future__ import annotations

import itertools
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from docs.pictures.small import main
from experiments.common import style

ROOT = Path(__file__).resolve().parents[2]

# Viénot, Brettel and Mollon 1999 (protanopia, deuteranopia): linear RGB as seen without long or middle cones.
SEEN = {
    "all cones": np.eye(3),
    "without long": np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]]),
    "without middle": np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]]),
}


def linear(colour: str) -> np.ndarray:
    """Linear RGB."""
    values = np.array(to_rgb(colour))
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIELAB under D65, where a distance of 2 is just seen."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(colour: str, ground: str) -> float:
    """Of two colours, as WCAG 2 counts it: 1 to 21."""
    bright, dim = sorted((float(np.array([0.2126, 0.7152, 0.0722]) @ linear(one)) for one in (colour, ground)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("eyes", SEEN)
@pytest.mark.parametrize("dark", [False, True])
def test_the_first_six_colours_are_told_apart(eyes: str, dark: bool) -> None:
    colours = [style.LIGHTER.get(colour, colour) if dark else colour for colour in style.PALETTE[:6]]
    seen = [lab(SEEN[eyes] @ linear(colour)) for colour in colours]
    assert min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2)) > 10


def test_colours_stand_out_from_the_dark_ground() -> None:
    assert min(contrast(style.LIGHTER.get(colour, colour), "#17171c") for colour in style.PALETTE) > 4


def drawn() -> plt.Figure:
    """A figure of what figures have."""
    with plt.rc_context(style.RC):
        figure, axes = plt.subplots(figsize=(2, 2))
        axes.plot([1, 2], [1, 2], "o-", color=style.PALETTE[0], markeredgecolor="white", label="markov")
        axes.fill_between([1, 2], [0, 1], [2, 3], color=style.PALETTE[8], alpha=0.2)
        axes.text(1, 1, "words", color=style.INK, bbox={"facecolor": "white", "edgecolor": "none"})
        axes.legend()
    return figure


def test_both_grounds_are_written_where_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(style.GROUNDS, raising=False)
    assert style.save(drawn(), tmp_path / "a.png") == "a.png"
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    monkeypatch.setenv(style.GROUNDS, "both")
    style.save(drawn(), tmp_path / "b.png")
    assert (tmp_path / "b.png").read_bytes() == (tmp_path / "a.png").read_bytes()
    light, dark = (plt.imread(tmp_path / name)[..., :3] for name in ("b.png", "b_dark.png"))
    assert light[0, 0].min() == 1.0 and dark[0, 0].max() < 0.13 and light.shape == dark.shape
    assert not (dark.min(axis=2) > 0.97).any()  # no white is left of markers' edges and texts' boxes
    monkeypatch.setenv(style.GROUNDS, "pink")
    with pytest.raises(ValueError, match="'pink': expected light or both"):
        style.save(drawn(), tmp_path / "c.png")


def test_what_lies_on_an_image_keeps_its_colours() -> None:
    figure, axes = plt.subplots()
    axes.imshow([[0.0, 1.0]])
    words = axes.text(0, 0, "1.0", color="white")
    style.darken(figure)
    assert words.get_color() == "white" and max(axes.title.get_color()[:3]) > 0.8
    plt.close(figure)


def test_pictures_are_written_with_few_colours_and_look_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ground = np.full((60, 80, 3), 255, np.uint8)
    ground[20:40, 20:60] = (0, 114, 178)
    style.small(Image.fromarray(ground), tmp_path / "few.png")
    assert (np.asarray(Image.open(tmp_path / "few.png").convert("RGB")) == ground).all()
    many = ground.copy()
    many[:10] = rng.integers(0, 255, (10, 80, 3))
    style.small(Image.fromarray(many), tmp_path / "many.png")
    with Image.open(tmp_path / "many.png") as written:
        found = np.asarray(written.convert("RGB"))
        assert written.mode == "P" and (found[10:] == many[10:]).all()
    assert np.abs(found.astype(int) - many).mean() < 10


def test_figures_that_ship_have_a_palette() -> None:
    """Those of another mode are made so by `python -m docs.pictures.small`."""
    shipped = [path for folder in ("docs/images", "results") for path in sorted((ROOT / folder).rglob("*.png"))]
    modes = {str(path.relative_to(ROOT)): Image.open(path).mode for path in shipped}
    assert len(modes) > 100 and {name for name, mode in modes.items() if mode != "P"} == set()


def test_a_picture_that_would_not_become_smaller_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    style.save(drawn(), path)
    before = path.read_bytes()
    main([path])
    assert path.read_bytes() == before
