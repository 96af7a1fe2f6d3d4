"""Common look of figures: a palette, thin frames, and axes with units that are easy to read."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from PIL import Image

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.collections import Collection  # noqa: E402
from matplotlib.colors import to_hex, to_rgba, to_rgba_array  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402
from matplotlib.text import Text  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter  # noqa: E402

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195", "#8C8C8C", "#5D4037")
"""Okabe and Ito's colours, which any kind of colour vision can distinguish; then three more."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h", "<")
FIXED = ("markov", "markov_ext", "roller", "ppo", "random_walk", "exhaustive", "local_search")
"""Strategies that have the same colour in every figure."""
LIGHTER = {"#0072B2": "#3A8FD9", "#009E73": "#2BB88D", "#56B4E9": "#8FD3F5", "#7A5195": "#B48BD0", "#5D4037": "#B08968"}
"""Palette colour that is too dark for a dark background -> its replacement there."""
GROUNDS = "GENSOR_GYM_FIGURES"
"""Environment variable: `light`, or `both` to write figures on a dark background, too."""
COLOURED: dict[type, tuple[str, ...]] = {
    Line2D: ("color", "markerfacecolor", "markeredgecolor"), Text: ("color",), Patch: ("facecolor", "edgecolor"),
    Collection: ("facecolor", "edgecolor"),
}  # fmt: skip
"""Class of a figure's parts -> names of the properties that hold their colours."""
_WRITTEN: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.15, "format": "png"}
COLOURS = 256
"""Largest number of colours in a figure's file. It makes the file a third as large, without a visible difference."""
INK, GREY, FAINT, PALE = "#222222", "#757575", "#DDDDDD", "#F0F0F0"
"""Colours of text, of secondary parts, of grid lines, and of boxes."""

RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans", "font.size": 9.0, "axes.titlesize": 9.5, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#888888",
    "axes.linewidth": 0.8, "axes.labelcolor": INK, "xtick.color": "#555555", "ytick.color": "#555555",
    "text.color": INK,
    "axes.grid": True, "grid.color": FAINT, "grid.linewidth": 0.6, "axes.axisbelow": True, "legend.frameon": False,
    "figure.dpi": 100, "savefig.dpi": 160, "figure.facecolor": "white",
}  # fmt: skip


def look(strategies: list[str]) -> dict[str, tuple[str, str]]:
    """Return the (colour, marker) of every strategy: fixed ones for some strategies, the next free pairs for all others.

    If there are more strategies than colours, colours repeat with another marker.
    """
    fixed = {name: FIXED.index(name) for name in FIXED if name in strategies}
    free = [i for i in range(len(PALETTE)) if i not in fixed.values()]
    found = {}
    count = 0
    for name in strategies:
        if name in fixed:
            place, turn = fixed[name], 0
        else:
            again = count - len(free)
            place, turn = (free[count], 0) if again < 0 else (again % len(PALETTE), 1 + again // len(PALETTE))
            count += 1
        found[name] = (PALETTE[place], MARKERS[(place + turn) % len(MARKERS)])
    return found


def plain(text: str) -> str:
    """Return an operator's text without arguments at their usual values (stride, dilation and groups 1, no padding)."""
    for usual in (", stride=1", ", dilation=1", ", groups=1", ", padding=0"):
        text = text.replace(usual, "")
    return text


def short_operator(text: str) -> str:
    """Return an operator's text for the title of a panel, without usual arguments and on two lines if it is long."""
    text = plain(text)
    if len(text) <= 46:
        return text
    cut = text.rfind(", ", 0, 46) + 1
    return f"{text[:cut]}\n    {text[cut:].strip()}"


def number(value: float) -> str:
    """Format a ratio with up to three significant digits."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def time_axis(axes: Axes, axis: str = "y") -> None:
    """Make an axis of seconds logarithmic, with unit labels at powers of ten, and between them if the range is short."""
    getattr(axes, f"set_{axis}scale")("log")
    low, high = getattr(axes, f"get_{axis}lim")()
    within = getattr(axes, f"{axis}axis")
    steps: tuple[float, ...] = (1.0, 2.0, 5.0) if high / low < 100 else (1.0,)
    steps = tuple(float(i) for i in range(1, 10)) if high / low < 5 else steps
    steps = tuple(1.0 + 0.1 * i for i in range(90)) if high / low < 1.3 else steps
    within.set_major_locator(LogLocator(subs=steps, numticks=12))
    within.set_major_formatter(FuncFormatter(lambda value, _: _unit(value)))
    within.set_minor_formatter(NullFormatter())


def ratio_axis(axes: Axes, axis: Literal["x", "y"]) -> None:
    """Make an axis of ratios logarithmic, with round ticks: at even distances if the range is short."""
    getattr(axes, f"set_{axis}scale")("log")
    low, high = getattr(axes, f"get_{axis}lim")()
    within = getattr(axes, f"{axis}axis")
    far = LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 500 else (1.0,), numticks=12)
    within.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]) if high / low < 4 else far)
    within.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    within.set_minor_formatter(NullFormatter())
    axes.tick_params(axis=axis, which="minor", length=0)


def panels(count: int, columns: int, size: tuple[float, float], more: float = 0.0, **options: Any) -> tuple[Figure, np.ndarray]:
    """Make a figure with `count` panels of `size` inches in at most `columns` columns; return (figure, grid of axes).

    `more` inches are added to its height. Surplus panels of the last row are hidden. `options` are passed to `plt.subplots`.
    """
    columns = min(columns, count)
    lines = -(-count // columns)
    whole = (size[0] * columns, size[1] * lines + more)
    figure, grid = plt.subplots(lines, columns, figsize=whole, squeeze=False, layout="constrained", **options)
    for axes in grid.flat[count:]:
        axes.set_visible(False)
    return figure, grid


def _unit(seconds: float) -> str:
    for name, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size * 0.9999:
            return f"{seconds:.0f} s" if seconds >= 1000 else f"{seconds / size:.3g} {name}"
    return f"{seconds / 1e-9:.3g} ns"


def save(figure: Figure, path: Path, grounds: str | None = None) -> str:
    """Write a figure as a PNG file, close it, and return the file's name.

    The file names no software and no time, so that equal figures give equal files. If `grounds` (by default $GENSOR_GYM_FIGURES)
    is `both`, NAME_dark.png next to it has the figure on a dark background. Raise ValueError for values other than `light` and
    `both`.
    """
    asked = grounds or os.environ.get(GROUNDS, "light")
    if asked not in ("light", "both"):
        raise ValueError(f"${GROUNDS} is {asked!r}: expected light or both")
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(figure, path)
    if asked == "both":
        darken(figure)
        _write(figure, dark_of(path))
    plt.close(figure)
    return path.name


def _write(figure: Figure, path: Path) -> None:
    drawn = io.BytesIO()
    figure.savefig(drawn, **_WRITTEN)
    small(Image.open(drawn), path)


def small(picture: Image.Image, path: Path) -> None:
    """Write an opaque picture as a PNG of at most `COLOURS` colours; a picture with fewer colours keeps them all.

    Colours are chosen one at a time: the next is the farthest from the chosen colours, weighted by its number of pixels.
    """
    pixels = np.asarray(picture.convert("RGB"), np.int64)
    seen, which, count = np.unique(pixels @ (1 << 16, 1 << 8, 1), return_inverse=True, return_counts=True)
    colours = seen[:, None] >> (16, 8, 0) & 255
    far, near = np.full(len(seen), np.iinfo(np.int32).max), np.zeros(len(seen), np.uint8)
    taken: list[int] = []
    while len(taken) < min(COLOURS, len(seen)):
        taken.append(int(np.argmax(far * np.sqrt(count))))
        away = np.square(colours - colours[taken[-1]]).sum(axis=1)
        near[away < far] = len(taken) - 1
        far = np.minimum(far, away)
    paletted = Image.fromarray(near[which.reshape(pixels.shape[:2])], "P")
    paletted.putpalette(colours[taken].astype(np.uint8).tobytes())
    paletted.save(path, "PNG", optimize=True, dpi=picture.info.get("dpi"))


def dark_of(path: Path) -> Path:
    """Return the path of the version of a figure on a dark background."""
    return path.with_name(f"{path.stem}_dark{path.suffix}")


def darken(figure: Figure) -> None:
    """Recolour a figure for a dark page: invert greys and lighten palette colours.

    Text and shapes on images keep their colours.
    """
    kept = {id(part) for axes in figure.axes if axes.images for part in (*axes.texts, *axes.patches)}
    found: list[Any] = [part for part in figure.findobj() if id(part) not in kept]
    boxes = [part.get_bbox_patch() for part in found if isinstance(part, Text)]
    for part in {id(part): part for part in (*found, *boxes) if part is not None}.values():
        names = next((names for kind, names in COLOURED.items() if isinstance(part, kind)), ())
        before = {name: to_rgba_array(getattr(part, f"get_{name}")()) for name in names}  # a marker may follow its line
        for name, colours in before.items():
            if len(colours) and colours[:, 3].any():
                dark = [_on_dark(colour) for colour in colours]
                getattr(part, f"set_{name}")(dark if isinstance(part, Collection) else dark[0])


def _on_dark(colour: np.ndarray) -> tuple[float, float, float, float]:
    red, green, blue, alpha = map(float, colour)
    if (lighter := LIGHTER.get(to_hex((red, green, blue)).upper())) is not None:
        return to_rgba(lighter, alpha)
    if max(red, green, blue) - min(red, green, blue) > 0.1:
        return red, green, blue, alpha
    grey = 0.09 + 0.85 * (1.0 - (red + green + blue) / 3.0)
    return grey, grey, grey + 0.02, alpha
