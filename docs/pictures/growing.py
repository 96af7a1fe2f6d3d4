"""The moving picture of README: a loop nest that grows, its place under the roofline, its time falling. Times an H100 took."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from docs.pictures.walk import HARDWARE, TASK, Step, graph, steps
from experiments.common import style
from gensor_gym.cost.roofline import peak_rate, resident_bandwidth
from gensor_gym.env.pictures.facts import in_seconds
from gensor_gym.env.pictures.render import as_text
from gensor_gym.hardware import get

BLUE, ORANGE, GREEN = style.PALETTE[:3]
SIZE, DPI = (9.6, 4.6), 125
FRAME_MS, LAST_MS = 1300, 5000
ROOM = 17
"""Lines of the loop nest that fit."""


def save(folder: Path) -> None:
    """Write growing.webp and growing_dark.webp."""
    light = folder / "growing.webp"
    for path in (light, style.dark_of(light)):
        with plt.rc_context(style.RC):
            frames = [_pixels(_frame(at), path != light) for at in range(len(steps()))]
        times = [FRAME_MS] * (len(frames) - 1) + [LAST_MS]
        frames[0].save(path, save_all=True, append_images=frames[1:], duration=times, loop=0, lossless=True, method=2)


def _pixels(figure: Figure, dark: bool) -> Image.Image:
    """The figure as an image; closes it."""
    if dark:
        style.darken(figure)
    figure.canvas.draw()
    image = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3].copy())  # type: ignore[attr-defined]
    plt.close(figure)
    return image


def _frame(at: int) -> Figure:
    """The picture after `at` steps."""
    figure = plt.figure(figsize=SIZE, dpi=DPI)
    place = {"left": 0.02, "right": 0.98, "top": 0.86, "bottom": 0.11, "hspace": 0.62, "wspace": 0.2}
    grid = figure.add_gridspec(2, 2, width_ratios=(1.15, 1), **place)
    here = steps()[at]
    figure.text(0.02, 0.945, f"{TASK} on an {HARDWARE.upper()}", fontsize=11, fontweight="bold")
    figure.text(0.02, 0.895, f"step {at}: {here.action}", fontsize=9.5, color=ORANGE, fontweight="bold")
    figure.text(0.98, 0.925, in_seconds(here.seconds), fontsize=17, fontweight="bold", color=GREEN, ha="right")
    _loops(figure.add_subplot(grid[:, 0]), at)
    _roofline(figure.add_subplot(grid[0, 1]), steps()[: at + 1])
    _times(figure.add_subplot(grid[1, 1]), steps()[: at + 1])
    return figure


def _lines(step: Step) -> list[str]:
    """The loop nest alone, without notes."""
    body = as_text(graph(), step.schedule).split("\n\n")[2]
    return [line.partition("#")[0].rstrip() for line in body.splitlines()]


def _loops(axes: Axes, at: int) -> None:
    """Pseudo-code, what is new in colour."""
    axes.axis("off")
    lines = _lines(steps()[at])
    before = {line.strip() for line in _lines(steps()[at - 1])} if at else {line.strip() for line in lines}
    for row, line in enumerate(lines):
        new = line.strip() not in before
        axes.text(0.0, 1 - (row + 0.5) / ROOM, line, family="DejaVu Sans Mono", fontsize=10, va="center",
                  color=ORANGE if new else style.INK, fontweight="bold" if new else "normal",
                  transform=axes.transAxes)  # fmt: skip


def _roofline(axes: Axes, walk: tuple[Step, ...]) -> None:
    """Rates of the walk under the bounds of the machine."""
    operator, machine = graph().operator, get(HARDWARE)
    peak, bandwidth = peak_rate(operator, machine), resident_bandwidth(operator, machine)
    intensity = np.geomspace(1, 2000, 50)
    axes.loglog(intensity, np.minimum(peak, intensity * bandwidth), color=style.GREY, linewidth=1.4)
    place = operator.flops / operator.compulsory_bytes
    rates = [operator.flops / step.seconds for step in walk]
    axes.plot([place] * len(rates), rates, color=style.FAINT, linewidth=1.2, zorder=1)
    axes.scatter([place] * (len(rates) - 1), rates[:-1], s=14, color=BLUE, zorder=2)
    axes.scatter([place], rates[-1:], s=60, color=ORANGE, zorder=3)
    axes.text(place * 0.8, rates[-1], f"{rates[-1] / 1e12:.3g} Tflop/s", ha="right", va="center", fontsize=8.5)
    axes.set(xlim=(1, 2000), ylim=(1e10, 3e14))
    axes.set_title("Roofline (float32 without tensor cores)", fontsize=9)
    axes.set_xlabel("flop per byte that must move", fontsize=8)
    axes.set_ylabel("flop/s", fontsize=8)
    axes.minorticks_off()


def _times(axes: Axes, walk: tuple[Step, ...]) -> None:
    """Measured seconds, step by step."""
    seconds = [step.seconds for step in walk]
    axes.plot(seconds, color=BLUE, linewidth=1.4, marker="o", markersize=3.5)
    axes.plot(len(walk) - 1, seconds[-1], "o", color=ORANGE, markersize=8)
    best = min(step.seconds for step in steps())
    axes.axhline(best, color=GREEN, linewidth=1.1, linestyle=(0, (4, 3)))
    axes.text(0, best * 1.2, "the fastest of all 1,040 that ran", color=GREEN, fontsize=8)
    axes.set_yscale("log")
    axes.set(xlim=(-0.3, len(steps()) - 0.6), ylim=(3e-5, 1e-1))
    axes.set_yticks([1e-4, 1e-3, 1e-2, 1e-1], ["0.1 ms", "1 ms", "10 ms", "100 ms"])
    axes.minorticks_off()
    axes.tick_params(labelsize=8)
    axes.set_title("Time as measured on the H100", fontsize=9)
    axes.set_xlabel("step", fontsize=8)
