"""The answer to the headline: time of every arm over the traverser's, on a CPU, in two modes, and on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.common import style
from experiments.studies.headline.page import compared
from experiments.studies.headline.scores import FIRST, REFERENCE, Timed, read

ROOT = Path(__file__).resolve().parents[2]
POLICIES = "a core of a Zen 4, policies"
AVX2 = "that core, AVX2 alone, ten minutes"
STUDIES = {
    POLICIES: ROOT / "results/cpu_study/zen4_wide",
    "NVIDIA H200": ROOT / "results/h200/raw/2026-11-27",
    "a core of a Zen 4, models of time": ROOT / "results/cpu_study/zen4",
    AVX2: ROOT / "results/cpu_study/zen4_avx2_new",
}
NAMES = {
    "columns": "columns (policy)", "learned": "learned (model of time)", "learned_ranking": "learned, ranks only",
    "learned_elsewhere": "learned elsewhere", "learned_longer": "learned longer", "model_of_time": "model of time",
    "columns_alone": "policy alone", "columns_recorded": "policy, recorded classes alone",
    "columns_descended": "policy, model of time, descents", "in_turn": "policy and walks in turn",
    "in_turn_elsewhere": "in turn, policy of AVX-512", "policy_ranked": "policy and model of time",
    "policy_alone": "policy alone",
}  # fmt: skip
OF_POLICIES = {**NAMES, "columns": "policy and model of time"}
"""Names of arms; in the study of policies, `columns` has its programs ranked by a model of time."""
LIMITS = (0.86, 2.0)
TICKS = (0.9, 1, 1.1, 1.25, 1.5, 2)


def draw(path: Path) -> None:
    """Write the picture for light and for dark pages."""
    with plt.rc_context(style.RC):
        style.save(_figure(), path, "both")


def _figure() -> Figure:
    """A panel for each processor."""
    figure, panels = plt.subplots(2, 2, figsize=(10.4, 5.6), layout="constrained")
    for axes, (name, folder) in zip(panels.flat, STUDIES.items(), strict=True):
        _panel(axes, read(folder), name, OF_POLICIES if name == POLICIES else NAMES)
    return figure


def _panel(axes: Axes, timed: Timed, title: str, names: Mapping[str, str]) -> None:
    """A row for each arm, fastest first: best of four programs over the traverser's, with its interval."""
    lines = [compared(names.get(arm, arm), timed, timed.whole, FIRST, ours=arm) for arm in timed.arms if arm != REFERENCE]
    lines.sort(key=lambda line: line.ratio)
    learned = set(names.values())
    for row, line in enumerate(lines):
        colour = style.PALETTE[1] if line.name in learned else style.GREY
        if line.low > LIMITS[1]:
            axes.annotate(f"{line.ratio:.1f} \N{RIGHTWARDS ARROW}", (LIMITS[1], row), (-4, 0), textcoords="offset points",
                          ha="right", va="center", fontsize=8, color=colour)  # fmt: skip
            continue
        axes.plot([line.low, line.high], [row, row], color=colour, lw=2)
        axes.plot([line.ratio], [row], "o", color=colour, ms=6)
    axes.axvline(1.0, color=style.INK, lw=1.1)
    axes.set_yticks(range(len(lines)), [line.name for line in lines], fontsize=8)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.set_xlim(LIMITS)
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.minorticks_off()
    axes.set_title(f"{title}, {len(timed.whole)} operators")
    axes.set_xlabel("time over the traverser's (left of 1: faster)")
