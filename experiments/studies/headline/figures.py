"""Figures of the study: ratios with intervals, the ratio of every operator, and performance profiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.common.style import GREY, RC, look, save
from experiments.statistics.statistics import performance_profile
from experiments.studies.headline.page import Line, best_known, compared, gaps, parts, primary, strata
from experiments.studies.headline.scores import FIRST, RANKS, REFERENCE, Timed, read

NARROW = (0.8, 0.84, 0.88, 0.92, 0.96, 1.0, 1.04, 1.08, 1.12, 1.16, 1.2)
TICKS = (0.1, 0.2, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0, 8.0)


def draw(folder: Path, path: Path) -> list[str]:
    """Draw the figures of a folder's rows and save them under names that begin like `path`; return the names."""
    timed = read(folder)
    with plt.rc_context(RC):
        made = {"study": _ratios(timed), "study_profiles": _profiles(timed)}
        return [save(figure, path.with_name(f"{path.name}_{name}.png")) for name, figure in made.items()]


def _ratios(timed: Timed) -> Figure:
    """Figure of the policy's and the other arms' ratios to the traverser, and of all operators."""
    upper = [primary(timed), *parts(timed, "first program alone", f"best of {RANKS[-1]}")]
    others = [arm for arm in timed.arms if arm not in (timed.learned, REFERENCE)]
    lower = [compared(arm, timed, timed.whole, FIRST, ours=arm) for arm in others]
    figure = plt.figure(figsize=(11.0, 4.8))
    rows = {"height_ratios": (len(upper), max(1, len(lower))), "width_ratios": (1.0, 1.3), "wspace": 0.12, "hspace": 0.45}
    grid = figure.add_gridspec(2, 2, **rows)
    colour = look([REFERENCE, timed.learned])[timed.learned][0]
    axes = figure.add_subplot(grid[0, 0] if lower else grid[:, 0])
    _forest(axes, upper, colour, f"{timed.learned} over {REFERENCE}")
    if lower:
        axes = figure.add_subplot(grid[1, 0])
        _forest(axes, lower, GREY, f"other arms over {REFERENCE}")
    axes.set_xlabel("time over the traverser's (left of 1: faster)")
    _operators(figure.add_subplot(grid[:, 1]), timed)
    return figure


def _forest(axes: Axes, lines: Sequence[Line], colour: str, title: str) -> None:
    """Draw a row with ratio and interval for each comparison."""
    lines = [line for line in lines if line.operators]
    for row, line in enumerate(lines):
        sides = [[line.ratio - line.low], [line.high - line.ratio]]
        axes.errorbar([line.ratio], [row], xerr=sides, fmt="o", ms=5, color=colour, capsize=3)
    axes.axvline(1.0, color="#555555", lw=0.8)
    axes.set_yticks(range(len(lines)), [f"{line.name} ({line.operators})" for line in lines])
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_title(title)
    _ratio_axis(axes, "x")


def _operators(axes: Axes, timed: Timed) -> None:
    """Draw the ratios of all operators in ascending order, coloured by stratum."""
    ops = timed.whole
    found, groups = gaps(timed, ops), strata(ops)
    looks, order = look(list(groups)), np.argsort(found)
    for name, members in groups.items():
        places = [(rank, math.exp(found[at])) for rank, at in enumerate(order) if ops[at] in members]
        colour, marker = looks[name]
        axes.plot(*zip(*places, strict=True), marker, color=colour, ms=4, lw=0, label=name)
    axes.axhline(1.0, color="#555555", lw=0.8)
    axes.set_title(f"{timed.learned} over {REFERENCE}, operator by operator")
    _ratio_axis(axes, "y")
    axes.set_xlabel("operators, in ascending order")
    axes.legend(loc="upper left")


def _ratio_axis(axes: Axes, axis: str) -> None:
    """Set a logarithmic axis of ratios with readable ticks."""
    getattr(axes, f"set_{axis}scale")("log", base=2)
    low, high = getattr(axes, f"get_{axis}lim")()
    wide, narrow = high > 5.0 * low, high < 1.3 * low
    left_out = (0.6, 0.7, 0.8, 0.9, 1.1, 1.25) if wide else ()
    ticks = [tick for tick in (NARROW if narrow else TICKS) if low <= tick <= high and tick not in left_out]
    getattr(axes, f"set_{axis}ticks")(ticks)
    getattr(axes, f"{axis}axis").set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()


def _profiles(timed: Timed) -> Figure:
    """Figure with the share of searches within a factor of the best known time, a line for each arm."""
    ops, factors = timed.whole, np.geomspace(1.0, 8.0, 200)
    best, looks = best_known(timed, ops), look(list(timed.arms))
    figure, several = plt.subplots(1, 2, figsize=(9.0, 3.6), sharey=True)
    for axes, k in zip(several, (1, FIRST), strict=True):
        for arm in timed.arms:
            over = np.exp(timed.logs(arm, ops, k) - best[:, None])
            axes.plot(factors, performance_profile(over, factors), color=looks[arm][0], label=arm, lw=1.6)
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 1.5, 2, 4, 8])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.minorticks_off()
        axes.set_title("first program" if k == 1 else f"best of {k} programs")
        axes.set_xlabel("time over the best known")
    several[0].set_ylabel("share of operators")
    several[1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
