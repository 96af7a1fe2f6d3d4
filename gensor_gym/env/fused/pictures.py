"""Picture of a fused operator's schedule: instructions from top to bottom, operands as boxes in a column per memory level."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gensor_gym.env.fused.text import as_text, rows_text, step_of, title
from gensor_gym.env.pictures.figure import ACCENT, DPI, FAINT, GRID, HEIGHT, INK, LEVEL_COLORS, WIDTH
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.igraph import Instruction
from gensor_gym.gir.lowering import lower
from gensor_gym.gir.model import TERMS
from gensor_gym.gir.placement import Level
from gensor_gym.gir.schedule import GirSchedule

__all__ = ["as_image", "as_text"]

_COLUMNS = {Level.DRAM: 0.0, Level.SRAM: 1.0, Level.REG: 2.0}
_COLORS = dict(zip(_COLUMNS, ("#cbd5de", *reversed(LEVEL_COLORS["cpu"][1:])), strict=True))
_LONGEST = 36
"""Number of characters of an expression after which a picture cuts it off."""


def as_image(graph: GirGraph, schedule: GirSchedule) -> np.ndarray:
    """Draw a schedule's instructions and the terms of its time by the model, and return the image, uint8 [H, W, 3].

    ImportError, with the command that installs matplotlib, if matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("render_mode 'rgb_array' draws with matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    figure.text(0.03, 0.945, title(graph, schedule), fontsize=14, fontweight="bold", color=INK)
    figure.text(0.03, 0.908, str(schedule), fontsize=10, color=FAINT)
    _instructions(figure.add_axes((0.03, 0.04, 0.66, 0.84)), graph, schedule)
    _terms(figure.add_axes((0.80, 0.5, 0.17, 0.34)), graph, schedule)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _lines(graph: GirGraph, schedule: GirSchedule) -> Iterator[tuple[str, Instruction | str]]:
    """Yield the lines of the picture from the top: (kind, instruction or text).

    The kind is `kernel`, `pass` (over the columns), `along` (an instruction for every column) or `once` (one for every row).
    """
    lowered = lower(graph.nest, schedule.placement(len(graph.nest.crossing)))
    for number, kernel in enumerate(lowered.kernels):
        step, _ = step_of(graph, schedule, len(kernel.passes))
        yield "kernel", f"kernel {number}: {rows_text(graph)}, {step.rows} a step"
        yield from (("once", one) for one in kernel.before)
        for one in kernel.passes:
            yield "pass", f"along {graph.nest.columns} columns"
            yield from (("along", i) for i in one.along)
            yield from (("once", i) for i in one.after)


def _instructions(axes: Any, graph: GirGraph, schedule: GirSchedule) -> None:
    lines = list(_lines(graph, schedule))
    axes.set_xlim(-0.45, 3.9)
    axes.set_ylim(len(lines) + 0.5, -1.2)
    axes.axis("off")
    for level, x in _COLUMNS.items():
        axes.text(x, -0.8, level.name, ha="center", fontsize=11, fontweight="bold", color=INK)
        axes.plot([x, x], [-0.3, len(lines)], color=GRID, linewidth=1.0, zorder=0)
    size = min(9.5, 260 / max(len(lines), 1))
    for y, (kind, what) in enumerate(lines):
        if isinstance(what, str):
            strong = kind == "kernel"
            axes.axhline(y - 0.45, color=INK if strong else GRID, linewidth=1.6 if strong else 0.8)
            axes.text(-0.42, y + 0.1, what, fontsize=size, fontweight="bold" if strong else "normal", color=ACCENT, va="center")
        else:
            _instruction(axes, y, what, size)


def _instruction(axes: Any, y: float, one: Instruction, size: float) -> None:
    target = one.target.buffer
    ends = [(one.sources[0][1].buffer, one.target.wide)] if one.kind == "move" else []
    for buffer, wide in [*ends, (target, one.target.wide)]:
        box = {"boxstyle": "round,pad=0.25", "facecolor": _COLORS[buffer.level], "edgecolor": "none" if wide else INK}
        axes.text(_COLUMNS[buffer.level], y, buffer.name, ha="center", va="center", fontsize=size, color=INK, bbox=box)
    if one.kind == "move":
        start, end = _COLUMNS[ends[0][0].level], _COLUMNS[target.level]
        if start != end:
            side = 0.2 if end > start else -0.2
            axes.annotate("", (end - side, y), (start + side, y), arrowprops={"arrowstyle": "->", "color": FAINT})
        return
    words = f"{one.body}" if one.kind == "map" else f"{one.body} of {one.sources[0][0]}"
    words = words if len(words) <= _LONGEST else words[: _LONGEST - 2] + ".."
    axes.text(2.35, y, words, va="center", fontsize=size, color=INK, family="monospace")


def _terms(axes: Any, graph: GirGraph, schedule: GirSchedule) -> None:
    values = np.array(list(graph.terms(schedule).values())) * 1e6
    axes.barh(range(len(TERMS)), values, color=LEVEL_COLORS["cpu"][1])
    axes.set_yticks(range(len(TERMS)), TERMS, fontsize=9, color=INK)
    axes.invert_yaxis()
    axes.tick_params(colors=FAINT, labelsize=9, length=0)
    axes.set_title("Terms of the latency, us", loc="left", fontsize=11, fontweight="bold", color=INK)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(GRID)
