"""How figures look: one palette, thin frames, and units that people read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: E402

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195", "#8C8C8C", "#5D4037")
"""Okabe and Ito's colours, distinguished with any kind of colour vision; then three more."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h", "<")
FIXED = ("markov", "markov_ext", "roller", "ppo", "random_walk", "exhaustive", "local_search")
"""Strategies that have the same colour in every figure."""
INK, FAINT = "#222222", "#DDDDDD"

RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans", "font.size": 9.0, "axes.titlesize": 9.5, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#888888",
    "axes.linewidth": 0.8, "axes.labelcolor": INK, "xtick.color": "#555555", "ytick.color": "#555555",
    "text.color": INK,
    "axes.grid": True, "grid.color": FAINT, "grid.linewidth": 0.6, "axes.axisbelow": True, "legend.frameon": False,
    "figure.dpi": 100, "savefig.dpi": 160, "figure.facecolor": "white",
}  # fmt: skip


def look(strategies: list[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of every strategy: fixed for those of this project, the next free ones for others.

    Where colours run out they come again with another marker.
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
    """An operator's text without arguments at their usual values."""
    for usual in (", stride=1", ", dilation=1", ", groups=1", ", padding=0"):
        text = text.replace(usual, "")
    return text


def short_operator(text: str) -> str:
    """An operator's text for a title, on two lines if it is long."""
    text = plain(text)
    if len(text) <= 46:
        return text
    cut = text.rfind(", ", 0, 46) + 1
    return f"{text[:cut]}\n    {text[cut:].strip()}"


def number(value: float) -> str:
    """A ratio with what digits matter."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def time_axis(axes: Axes, axis: str = "y") -> None:
    """Logarithmic seconds with unit labels: at powers of ten, and between them where there is less than a decade."""
    getattr(axes, f"set_{axis}scale")("log")
    low, high = getattr(axes, f"get_{axis}lim")()
    within = getattr(axes, f"{axis}axis")
    steps: tuple[float, ...] = (1.0, 2.0, 5.0) if high / low < 100 else (1.0,)
    steps = tuple(float(i) for i in range(1, 10)) if high / low < 5 else steps
    steps = tuple(1.0 + 0.1 * i for i in range(90)) if high / low < 1.3 else steps
    within.set_major_locator(LogLocator(subs=steps, numticks=12))
    within.set_major_formatter(FuncFormatter(lambda value, _: _unit(value)))
    within.set_minor_formatter(NullFormatter())


def _unit(seconds: float) -> str:
    """A tick of a time axis."""
    for name, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size * 0.9999:
            return f"{seconds:.0f} s" if seconds >= 1000 else f"{seconds / size:.3g} {name}"
    return f"{seconds / 1e-9:.3g} ns"


def save(figure: Figure, path: Path) -> str:
    """Write a PNG and close the figure; returns the file's name. The bytes do not name the software or the time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", pad_inches=0.15, metadata={"Software": None})
    plt.close(figure)
    return path.name
