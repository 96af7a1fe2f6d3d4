"""Figures for Gensor's tables: our values next to the published values, on axes of the same scale."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from experiments.common import style
from experiments.tables.gensor.searches import Speeds

Curve = tuple[np.ndarray, np.ndarray]
"""Points of a line, as (x, y) arrays."""
LIBRARY = "vendor's library"
MARKS = 10
"""Largest number of markers on a line."""


def draw_operators(
    speeds: Speeds, reference: str, paper: Mapping[str, tuple[float, float, float]], figure: str, path: Path
) -> str:
    """Draw speeds relative to Ansor by operator, ours above and the paper's below; write the figure, return its file name.

    `paper` has the published speeds of (library, Roller, Gensor), and `figure` is the paper's name for its figure.
    """
    names = [name for name in speeds.logs if name != reference]
    ours = {name: np.exp(np.nanmean(speeds.logs[name], axis=1)) for name in names}
    theirs = {
        label: np.array([row[i] for row in paper.values()]) for i, label in enumerate((LIBRARY, "Roller", "Gensor"))
    }
    looks = _looks(names)
    with plt.rc_context(style.RC):
        canvas, (above, below) = plt.subplots(2, 1, figsize=(9.2, 6.4), layout="constrained")
        labels = [_short(str(op)) for op in speeds.operators]
        _dots(above, labels, ours, looks)
        above.set_title(f"ours: {'timed' if speeds.live else 'predicted by the model'}, over {reference}")
        _dots(below, list(paper), theirs, {LIBRARY: looks["torch"], "Roller": looks["roller"], "Gensor": looks["markov"]})
        below.set_title(f"published, {figure}: other operators, over Ansor")
        low = min(axes.get_ylim()[0] for axes in (above, below))
        high = max(axes.get_ylim()[1] for axes in (above, below))
        for axes in (above, below):
            axes.set_ylim(low, high)
            style.ratio_axis(axes, "y")
        return style.save(canvas, path)


def draw_curves(
    panels: Sequence[tuple[str, Mapping[str, Curve]]], labels: tuple[str, str], path: Path, kinds: tuple[str, str]
) -> str:
    """Draw a panel with lines for each entry of `panels` (title, lines by name); write the figure and return its file name.

    `labels` name the x and y axis, and `kinds` are their kinds: "sizes", "calls", "seconds" or "share".
    """
    with plt.rc_context(style.RC):
        canvas, grid = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 4.2), squeeze=False, layout="constrained")
        looks = _looks([name for _, curves in panels for name in curves])
        for axes, (title, curves) in zip(grid[0], panels, strict=True):
            for name, (x, y) in curves.items():
                colour, marker = looks[name]
                dashed = "-" if name[0].islower() else "--"
                drawn = "steps-post" if kinds[1] == "share" else "default"
                axes.plot(
                    x, y, dashed, color=colour, marker=marker, markevery=max(1, len(x) // MARKS), markersize=4, linewidth=1.5,
                    label=name, drawstyle=drawn,
                )  # fmt: skip
            for axis, kind in zip("xy", kinds, strict=True):
                _scale(axes, axis, kind)
            axes.set_title(title)
            axes.set_xlabel(labels[0])
            axes.legend(fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.14))
        grid[0][0].set_ylabel(labels[1])
        return style.save(canvas, path)


def _scale(axes: Axes, axis: str, kind: str) -> None:
    within = getattr(axes, f"{axis}axis")
    if kind == "seconds":
        style.time_axis(axes, axis)
    elif kind == "share":
        getattr(axes, f"set_{axis}lim")(0.0, 1.05)
    else:
        getattr(axes, f"set_{axis}scale")("log", base=2 if kind == "sizes" else 10)
        within.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if value < 1e6 else f"{value:.0e}"))
        within.set_minor_formatter(NullFormatter())


def _dots(
    axes: Axes, labels: Sequence[str], values: Mapping[str, np.ndarray], looks: Mapping[str, tuple[str, str]]
) -> None:
    width = 0.6 / max(1, len(values))
    for place, (name, rates) in enumerate(values.items()):
        colour, marker = looks[name]
        x = np.arange(len(labels)) + (place - (len(values) - 1) / 2) * width
        axes.plot(x, rates, marker, color=colour, markersize=5, markeredgecolor="white", markeredgewidth=0.4, label=name)
    axes.axhline(1.0, color=style.INK, linestyle=(0, (4, 3)), linewidth=1.0)
    axes.set_yscale("log")
    axes.set_xticks(range(len(labels)), labels, fontsize=6.5, rotation=30, ha="right")
    axes.grid(visible=False, axis="x")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=7.5)


PAPER = {"Gensor": "markov", "Roller": "roller", "Ansor": "ansor", "AutoTVM": "autotvm", "PyTorch": "torch"}
"""Name in the paper -> strategy of this project whose colour and marker it gets."""


def _looks(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the (colour, marker) of each line; a strategy of the paper looks like its counterpart in this project.

    A suffix of a strategy's name (its trials) does not change the colour. A second line of a strategy gets the next marker that
    no other line of its colour has.
    """
    plain = {name: PAPER.get(name, re.split(r"[ ,:]", name)[0]) for name in names if name != LIBRARY}
    looks = style.look(list(dict.fromkeys((*plain.values(), "roller", "markov", "torch"))))
    found, begun = dict(looks), set[str]()
    for name, of in plain.items():
        colour, marker = looks[of]
        if name in PAPER or of not in begun:
            found[name] = looks[of]
            begun.add(of)
            continue
        marks = style.MARKERS[style.MARKERS.index(marker) :] + style.MARKERS
        found[name] = (colour, next((mark for mark in marks if (colour, mark) not in found.values()), marker))
    return {**found, **{name: looks[mine] for name, mine in PAPER.items() if mine in looks}}


def _short(text: str) -> str:
    name, _, rest = style.plain(text).partition("(")
    numbers = [part.split("=")[1] for part in rest.rstrip(")").split(", ") if "=" in part and '"' not in part]
    return f"{name.replace('avg_pool2d', 'pool').replace('2d', '')} {'x'.join(numbers[:5])}"
