"""Pictures of the concepts: the way of the data, the rewards of an episode, sizes of tiles by space, regret, what a time is."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from docs.pictures.walk import HARDWARE, TASK, graph, steps, table
from experiments.common import style
from gensor_gym.graph.ladder import ladders

BLUE, ORANGE, GREEN = style.PALETTE[:3]
WAY = ("operator\n+ machine", "graph", "schedule", "program", "source", "kernel", "measure-\nment", "reward")
SPACES = ("compact", "gensor")


def draw(folder: Path) -> None:
    """Write all of them for light and for dark pages."""
    figures = {"way": _way, "rewards": _rewards, "sizes": _sizes, "regret": _regret, "samples": _samples}
    with plt.rc_context(style.RC):
        for name, drawn in figures.items():
            style.save(drawn(), folder / f"{name}.png", "both")


def _way() -> Figure:
    """Boxes from the operator to the reward."""
    figure, axes = plt.subplots(figsize=(9.6, 0.9))
    axes.axis("off")
    axes.set(xlim=(-0.5, len(WAY) - 0.5), ylim=(-1, 1))
    for at, name in enumerate(WAY):
        axes.text(at, 0, name, ha="center", va="center", fontsize=9.5,
                  bbox={"boxstyle": "round,pad=0.45", "facecolor": style.PALE, "edgecolor": style.GREY})  # fmt: skip
        if at:
            axes.annotate("", (at - 0.4, 0), (at - 0.6, 0), arrowprops={"arrowstyle": "->", "color": style.GREY})
    return figure


def _rewards() -> Figure:
    """What every step of the walk pays, and their sum, by the model."""
    task = graph()
    potential = [math.log(steps()[0].predicted / step.predicted) for step in steps()]
    final = max(0.0, math.log(1000 * task.floor / steps()[-1].predicted))
    paid = [*np.diff(potential), final - potential[-1]]
    figure, axes = plt.subplots(figsize=(9.0, 3.4), layout="constrained")
    at = np.arange(1, len(paid) + 1)
    axes.bar(at, paid, width=0.55, color=[BLUE] * (len(paid) - 1) + [ORANGE], label="reward of the step")
    axes.plot(at, np.cumsum(paid), "o-", color=GREEN, markersize=4, linewidth=1.4, label="return so far")
    axes.axhline(0, color=style.GREY, linewidth=0.8)
    names = [f"{step.action.split(':')[0]}\n{step.action.split()[-1]}" for step in steps()[1:]]
    axes.set_xticks(at, [name if name.startswith("tile") else "cache" for name in names] + ["stop"], fontsize=8)
    axes.set_ylabel("log of the speed-up")
    axes.set_title(f"An episode on {TASK}, {HARDWARE}, by the model: the return is R = log(T_cap / T)")
    axes.legend(loc="upper left", fontsize=8)
    return figure


def _sizes() -> Figure:
    """Sizes that a tile of an axis of 1024 may have, by space."""
    figure, axes = plt.subplots(figsize=(9.0, 1.7), layout="constrained")
    for row, space in enumerate(reversed(SPACES)):
        sizes = ladders(graph().operator, space, graph().hardware)[0]
        axes.plot(sizes, [row] * len(sizes), "o", color=BLUE, markersize=5)
    axes.set_xscale("log", base=2)
    axes.set_yticks(range(len(SPACES)), list(reversed(SPACES)))
    axes.set_ylim(-0.6, len(SPACES) - 0.4)
    axes.set_xticks([2**p for p in range(11)], [str(2**p) for p in range(11)])
    axes.minorticks_off()
    axes.set_title("Sizes of a tile along an axis of 1024")
    return figure


def _regret() -> Figure:
    """All recorded programs of the task, fastest first, and what regret the axis says."""
    seconds = table()["median"].to_numpy()
    figure, axes = plt.subplots(figsize=(9.0, 3.2), layout="constrained")
    axes.plot(np.arange(1, len(seconds) + 1), np.log(seconds / seconds[0]), color=BLUE, linewidth=1.8)
    for share, words, above in ((0.5, "half of all programs", -8), (0.05, "the fastest 5 %", 42)):
        at = int(share * len(seconds))
        regret = math.log(seconds[at] / seconds[0])
        axes.plot(at + 1, regret, "o", color=ORANGE, markersize=6)
        axes.annotate(f"{words}: regret {regret:.2f},\n{math.exp(regret):.1f} times the optimum", (at + 1, regret), (12, above),
                      textcoords="offset points", fontsize=8.5, va="top")  # fmt: skip
    axes.set(xlabel="programs, fastest first", ylabel="regret, ln(T / T*)")
    axes.set_title(f"{TASK} on an H100: {len(seconds):,} programs timed, T* = {seconds[0] * 1e6:.1f} us")
    return figure


def _samples() -> Figure:
    """Raw samples of the eight fastest programs, with their medians."""
    figure, axes = plt.subplots(figsize=(9.0, 2.8), layout="constrained")
    for row in range(8):
        samples = np.asarray(table()["samples"][row]) * 1e6
        axes.plot(samples, np.full(len(samples), row), "o", color=BLUE, alpha=0.45, markersize=5)
        axes.plot(np.median(samples), row, "|", color=ORANGE, markersize=14, markeredgewidth=2)
    axes.invert_yaxis()
    axes.set_yticks(range(8), [f"rank {row + 1}" for row in range(8)])
    axes.set_xlabel("microseconds")
    axes.set_title("Samples of the eight fastest programs of the table, and their medians")
    return figure
