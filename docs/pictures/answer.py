"""The answer to the headline: time of learned searches over the traverser's on a CPU, on the same with AVX2 alone, on a GPU."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.common import style
from experiments.studies.headline.page import Line, compared
from experiments.studies.headline.scores import FIRST, read

ROOT = Path(__file__).resolve().parents[2]
LEARNED, WITHOUT = style.PALETTE[1], style.GREY
POLICY, MODEL, BOTH = "policy alone", "learned cost model", "both in turn (in_turn)"
DESCENT = "descent, not learned"
LEARNING = {BOTH: "in_turn", MODEL: "model_of_time"}
STUDIES = {
    "One core of a Zen 4": (
        "results/cpu_study/zen4_wide", {**LEARNING, POLICY: "columns_alone", DESCENT: "model_descent"},
    ),
    "That core without AVX-512, after ten minutes of measuring": (
        "results/cpu_study/zen4_avx2_new", {**LEARNING, POLICY: "policy_alone", DESCENT: "model_descent"},
    ),
    "NVIDIA H200": ("results/h200/raw/2026-11-27", {POLICY: "columns", DESCENT: "model_descent"}),
}  # fmt: skip
"""Title of a machine -> folder of its study, and the arms that are shown by their names in the picture."""
LIMITS = (0.87, 1.24)
TICKS = (0.9, 1, 1.1, 1.2)


def draw(path: Path) -> None:
    """Write the picture for light and for dark pages."""
    with plt.rc_context(style.RC):
        style.save(_figure(), path, "both")


def _figure() -> Figure:
    """Draw a row for each arm below the title of its machine."""
    figure, axes = plt.subplots(figsize=(8.6, 4.6), layout="constrained")
    row, names = 0, {}
    for title, (folder, arms) in STUDIES.items():
        timed = read(ROOT / folder)
        axes.text(LIMITS[0], row, f"{title}, {len(timed.whole)} operators", fontsize=10, fontweight="bold", va="center")
        for name, arm in arms.items():
            row += 1
            names[row] = name
            _row(axes, row, compared(name, timed, timed.whole, FIRST, ours=arm), WITHOUT if name == DESCENT else LEARNED)
        axes.vlines(1.0, row - len(arms) + 0.5, row + 0.5, color=style.INK, lw=1.2)
        row += 1
    axes.set_yticks(list(names), list(names.values()), fontsize=10)
    axes.set_ylim(row - 0.4, -0.6)
    axes.set_xscale("log")
    axes.set_xlim(LIMITS)
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS], fontsize=10)
    axes.minorticks_off()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("time over the traverser's, best of four programs (left of 1: faster than the traverser)", fontsize=10)
    return figure


def _row(axes: Axes, row: int, line: Line, colour: str) -> None:
    """Draw a ratio with its interval, and write the verdict to its right."""
    verdict = "faster" if line.high < 1 else "slower" if line.low > 1 else "level"
    axes.plot([line.low, line.high], [row, row], color=colour, lw=2.6)
    axes.plot([line.ratio], [row], "o", color=colour, ms=7)
    axes.text(LIMITS[1] * 1.01, row, f"{line.ratio:.3f}  {verdict}", fontsize=10, va="center", color=colour)
