"""A program as one figure: tiles, resources, point under the roofline, terms of the latency.

matplotlib is imported when a figure is drawn. Figures are made without pyplot, so they need no display and no global state.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gensor_gym.codegen.program import lower
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.roofline import resident_bandwidth
from gensor_gym.env.pictures.facts import LEVEL_NAMES, TERM_WORDS, bound, in_seconds, spread, uses
from gensor_gym.graph.schedule import Schedule

WIDTH, HEIGHT, DPI = 12.0, 7.5, 100
INK, FAINT, GRID = "#1f2933", "#7b8794", "#e4e7eb"
LEVEL_COLORS = {"gpu": ("#12507b", "#6aaed6"), "cpu": ("#12507b", "#3f8fc4", "#9fcbe8")}
EXTENT_COLOR, GOOD, WARN, BAD, ACCENT = "#e9eef2", "#4f9d69", "#e0a030", "#c8453b", "#d9632a"


def as_image(graph: ConstructionGraph, schedule: Schedule) -> np.ndarray:
    """Draw a program as a figure, and return the image, uint8 [H, W, 3].

    ImportError, with the command that installs matplotlib, if matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("render_mode 'rgb_array' draws with matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    grid = figure.add_gridspec(
        2, 2, left=0.105, right=0.975, top=0.815, bottom=0.085, hspace=0.5, wspace=0.3, width_ratios=(1.1, 1)
    )
    _title(figure, graph, schedule)
    _tiles(_panel(figure, grid[0, 0], "Tiles"), graph, schedule)
    _roofline(_panel(figure, grid[0, 1], "Roofline"), graph, schedule)
    _terms(_panel(figure, grid[1, 0], "Terms of the latency"), graph, schedule)
    _resources(_panel(figure, grid[1, 1], "Resources"), graph, schedule)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _panel(figure: Any, place: Any, title: str) -> Any:
    axes = figure.add_subplot(place)
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", color=INK, pad=22)
    axes.tick_params(colors=FAINT, labelsize=9, length=0)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(GRID)
    return axes


def _title(figure: Any, graph: ConstructionGraph, schedule: Schedule) -> None:
    level = LEVEL_NAMES[graph.hardware.kind][schedule.level]
    text = str(graph.operator)
    size = 15 if len(text) < 75 else 11 if len(text) < 105 else 9
    figure.text(0.03, 0.945, text, fontsize=size, fontweight="bold", color=INK)
    seconds = graph.latency(schedule)
    if not math.isfinite(seconds):
        speed = "not legal here"
    else:
        over = f"{seconds / graph.floor:.3g}x the roofline floor"
        speed = f"{in_seconds(seconds)} by the model, {over}, bound by {bound(graph, schedule)}"
    figure.text(0.03, 0.908, f"{graph.hardware.name}    {speed}    {spread(graph, schedule)}", fontsize=10, color=FAINT)
    figure.text(0.972, 0.947, f"under construction: {level}", fontsize=9, color=ACCENT, ha="right", fontweight="bold")


def _tiles(axes: Any, graph: ConstructionGraph, schedule: Schedule) -> None:
    program, kind = lower(graph.operator, schedule, graph.hardware), graph.hardware.kind
    longest = max(*graph.operator.extents, *program.tiles[-1])
    rows = range(len(graph.operator.axes))
    colors = LEVEL_COLORS[kind]
    for a in rows:
        axes.barh(a, _length(graph.operator.extents[a]), height=0.8, color=EXTENT_COLOR)
        for level in reversed(range(len(program.tiles))):
            height = 0.3 + 0.36 * level / (len(program.tiles) - 1)
            axes.barh(a, _length(program.tiles[level][a]), height=height, color=colors[level])
        numbers = " · ".join(str(tile[a]) for tile in program.tiles) + f" of {graph.operator.extents[a]}"
        virtual = f"  v{program.vthread[a]}" if program.vthread[a] > 1 else ""
        axes.text(_length(longest) * 1.02, a, numbers + virtual, va="center", fontsize=8.5, color=INK)
    names = [f"{axis.name}{'  Σ' if axis.kind == 'reduce' else ''}" for axis in graph.operator.axes]
    axes.set_yticks(list(rows), names, fontsize=10, color=INK)
    room = 0.5 + max(0, 3 - len(rows)) / 2
    axes.set_ylim(len(rows) - 1 + room, -room)
    powers = range(0, math.ceil(math.log2(longest)) + 1, 1 if longest <= 512 else 2)
    axes.set_xticks([_length(2**p) for p in powers], [_short(2**p) for p in powers])
    axes.set_xlim(0, _length(longest) * 1.32)
    note = [("v: virtual threads", "white")] if any(v > 1 for v in program.vthread) else []
    _legend(axes, [*zip(LEVEL_NAMES[kind], colors, strict=True), ("extent", "#cbd5de"), *note])


def _length(size: int) -> float:
    """Return the length at which a tile size is drawn: its logarithm, plus a constant that makes size 1 visible."""
    return 0.35 + math.log2(size)


def _short(number: float) -> str:
    """Return a number as short text, such as `512`, `64K` or `1M`."""
    for scale, letter in ((2**20, "M"), (2**10, "K")):
        if number >= scale:
            return f"{number / scale:.0f}{letter}"
    return f"{number:.0f}"


def _legend(axes: Any, entries: list[tuple[str, str]]) -> None:
    at = 0.0
    for name, color in entries:
        for word, ink in (("■" if color != "white" else "", color), (name, FAINT)):
            text = axes.annotate(
                word, (0.0, 1.0), (at, 8), xycoords="axes fraction", textcoords="offset points", color=ink, fontsize=9
            )
            at += text.get_window_extent().width * 72 / DPI + 4
        at += 10


def _roofline(axes: Any, graph: ConstructionGraph, schedule: Schedule) -> None:
    op = graph.operator
    peak = dict(graph.hardware.peak).get(op.dtype) or graph.hardware.peak_of("float32")
    _roofs(axes, graph, peak)
    seconds = [graph.latency(graph.initial()), graph.latency(schedule)]
    first, here = (op.flops / s if math.isfinite(s) else math.nan for s in seconds)
    lowest = min(first, here) if math.isfinite(here) else first
    best = op.flops / graph.floor
    axes.vlines(op.intensity, lowest, best, color=GRID, lw=6, zorder=1)
    axes.scatter([op.intensity], [first], s=45, facecolor="white", edgecolor=FAINT, lw=1.5, zorder=4)
    axes.scatter([op.intensity], [best], marker="_", s=160, color=INK, lw=2, zorder=4)
    axes.scatter([op.intensity], [here], s=80, color=ACCENT, zorder=7, edgecolor="white", lw=1)
    axes.set_ylim(lowest / 4, peak * 4)
    share = f"this program, {100 * here / best:.2g}% of the roof" if math.isfinite(here) else "this program"
    _legend(axes, [(share, ACCENT), ("unscheduled", "#cbd5de")])


def _roofs(axes: Any, graph: ConstructionGraph, peak: float) -> None:
    levels = [m for m in graph.hardware.memory if m.name in ("dram", "l3", "l2", "l1")]
    holding = resident_bandwidth(graph.operator, graph.hardware)
    low, high = _range(graph.operator.intensity, peak / min(m.bandwidth for m in levels))
    xs = np.geomspace(low, high, 200)
    label = {"fontsize": 7.5, "ha": "center", "va": "center", "zorder": 6}
    for order, level in enumerate(levels):
        used = level.bandwidth == holding
        ys = np.minimum(peak, xs * level.bandwidth)
        axes.loglog(xs, ys, color=INK if used else "#b8c2cc", lw=1.8 if used else 1.1, zorder=3 if used else 2)
        at = low * 1.5 * 1.8**order
        if at * level.bandwidth < peak:
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
            ink = INK if used else FAINT
            axes.text(at, at * level.bandwidth, level.name.upper(), color=ink, bbox=box, **label)
    axes.set_xlim(low, high)
    axes.grid(True, which="major", color=GRID, lw=0.8)
    axes.minorticks_off()
    axes.set_xlabel("flop per compulsory byte", fontsize=9, color=FAINT)
    axes.set_ylabel("flop/s", fontsize=9, color=FAINT)


def _range(intensity: float, ridge: float) -> tuple[float, float]:
    return min(intensity, ridge) / 20, max(intensity, ridge) * 20


def _terms(axes: Any, graph: ConstructionGraph, schedule: Schedule) -> None:
    words = TERM_WORDS[graph.hardware.kind]
    terms = graph.terms(schedule)
    scale, unit = next(
        (s, u)
        for s, u in ((1.0, "seconds"), (1e-3, "milliseconds"), (1e-6, "microseconds"))
        if max(terms.values()) >= s or s < 1e-5
    )
    values = [seconds / scale for seconds in terms.values()]
    seconds, floor = graph.latency(schedule) / scale, graph.floor / scale
    top = max(*values, floor, seconds if math.isfinite(seconds) else 0.0)
    for row, (name, value) in enumerate(zip(terms, values, strict=True)):
        axes.barh(row, value, height=0.62, color=ACCENT if value == max(values) else "#9fb3c8")
        axes.text(
            value + top * 0.012,
            row,
            f"{_number(value)}",
            va="center",
            fontsize=8.5,
            color=INK if value > 0 else "#b8c2cc",
            zorder=5,
        )
        axes.text(-top * 0.015, row, words[name], va="center", ha="right", fontsize=9, color=INK)
    axes.set_yticks([])
    axes.invert_yaxis()
    axes.set_xlim(0, top * 1.12)
    axes.set_xlabel(f"{unit} by the model (terms overlap)", fontsize=9, color=FAINT)
    axes.grid(True, axis="x", color=GRID, lw=0.8)
    axes.axvline(floor, color=GOOD, lw=1.4, ls=(0, (4, 2)))
    if math.isfinite(seconds):
        axes.axvline(seconds, color=INK, lw=1.4)
    _legend(
        axes, [("largest", ACCENT), (f"latency {_number(seconds)}", INK), (f"roofline floor {_number(floor)}", GOOD)]
    )


def _number(value: float) -> str:
    """Return a number as text with three digits and without powers of ten. Numbers close to 0 become `0`."""
    if not math.isfinite(value):
        return "infinite"
    return (
        f"{value:.0f}" if value >= 100 or value < 0.0005 else f"{value:.{2 - max(-1, math.floor(math.log10(value)))}f}"
    )


def _resources(axes: Any, graph: ConstructionGraph, schedule: Schedule) -> None:
    for row, use in enumerate(uses(graph, schedule)):
        color = GOOD if use.fraction <= 0.75 else WARN if use.fraction <= 1.0 or use.soft else BAD
        axes.barh(row, 1.0, height=0.42, color=EXTENT_COLOR)
        axes.barh(row, min(1.25, use.fraction), height=0.42, color=color)
        axes.text(0.0, row - 0.34, str(use), fontsize=9, color=INK, va="center")
        axes.text(
            1.27,
            row,
            f"{use.fraction:.0%}" if use.fraction < 9.995 else f"x {use.fraction:.0f}",
            fontsize=9,
            color=INK,
            va="center",
        )
    axes.axvline(1.0, color=FAINT, lw=1.2)
    axes.set_yticks([])
    axes.set_xticks([0.0, 0.25, 0.5, 0.75, 1.0], ["0", "25%", "50%", "75%", "100%"])
    axes.set_xlim(0, 1.4)
    axes.invert_yaxis()
