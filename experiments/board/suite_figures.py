"""Figures of the leaderboard: mean regrets by tier, performance profiles and learning curves."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from experiments.board.suite_scores import CAP, WITHIN, Standing, interval, iqm, learned
from experiments.common import statistics, style
from gensor_gym.measure.stats.intervals import LEVEL
from gensor_gym.suites.session import WINDOWS

LEAST = 1e-3
"""Smallest regret that the logarithmic axes show; smaller regrets are drawn at this value."""
TICKS = (0.001, 0.01, 0.1, 1.0, 10.0)


def draw(standings: Sequence[Standing], folder: Path) -> list[Path]:
    """Draw the figure of every track, TRACK.png, and TRACK_learning.png if agents learned on it; return the files."""
    made = []
    with plt.rc_context(style.RC):
        for standing in standings:
            made.append(_of_track(standing, folder / f"{standing.track.name}.png"))
            if standing.track.steps is not None:
                made.append(_curves(standing, folder / f"{standing.track.name}_learning.png"))
    return made


def _of_track(standing: Standing, path: Path) -> Path:
    agents, looks = standing.agents, style.look(standing.agents)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 0.9 + 0.29 * max(8, len(agents))), width_ratios=(1, 1.15))
    _tiers(left, standing)
    shares = np.logspace(np.log10(LEAST), np.log10(np.expm1(CAP)), 200)
    for agent in agents:
        colour, marker = looks[agent]
        profile = statistics.performance_profile(standing.scores[agent], np.log1p(shares))
        right.plot(shares, 100 * profile, color=colour, marker=marker, markevery=(0.03, 0.16), markersize=4, label=agent)
    right.axvline(WITHIN, color=style.GREY, linewidth=0.8, linestyle=(0, (3, 3)))
    right.set_title("Searches that come so near")
    right.set_ylabel("searches, %")
    right.set_ylim(0, 102)
    _regrets(right)
    right.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    figure.tight_layout()
    style.save(figure, path)
    return path


def _tiers(axes: Axes, standing: Standing) -> None:
    agents, looks = standing.agents, style.look(standing.agents)
    for y, agent in enumerate(agents):
        own = standing.scores[agent]
        low, high = (_drawn(value) for value in interval(own))
        axes.plot([low, high], [y, y], color=looks[agent][0], linewidth=2)
        axes.plot(_drawn(float(iqm(own))), y, looks[agent][1], color=looks[agent][0], markersize=6)
    begin = 0
    for number, names in enumerate(standing.tiers):
        if number % 2:
            axes.axhspan(begin - 0.5, begin + len(names) - 0.5, color=style.PALE, zorder=0)
        begin += len(names)
    axes.set_yticks(range(len(agents)), agents)
    axes.set_ylim(len(agents) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set_title(f"Interquartile mean, {LEVEL}, by tiers")
    _regrets(axes)


def _drawn(regret: float) -> float:
    """Turn a regret log(T / T*) into the relative excess T / T* - 1 that the axis shows, at least `LEAST`."""
    return max(LEAST, float(np.expm1(regret)))


def _regrets(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_xlim(LEAST * 0.8, 120)
    axes.set_xticks(TICKS, [f"≤{100 * LEAST:g} %", *(f"{100 * tick:g} %" for tick in TICKS[1:])])
    axes.set_xlabel("slower than the best known")


def _curves(standing: Standing, path: Path) -> Path:
    """Draw learning curves on a track: regret of episodes, and best regret so far, over steps.

    Curves are medians over tasks and seeds, with bands from the lower to the upper quartile.
    """
    looks = style.look(standing.agents)
    figure, both = plt.subplots(1, 2, figsize=(9.6, 3.4), sharey=True)
    for agent in standing.agents:
        if (found := learned(standing, agent)) is None:
            continue
        colour, marker = looks[agent]
        for axes, k in zip(both, (1, 2), strict=True):
            shown = np.maximum(LEAST, np.expm1(np.minimum(found[..., k], CAP)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # all nan before the first episode ends
                low, middle, high = np.nanquantile(shown, (0.25, 0.5, 0.75), axis=0)
            axes.fill_between(found[0, :, 0], low, high, color=colour, alpha=0.15, linewidth=0)
            axes.plot(found[0, :, 0], middle, color=colour, marker=marker, markevery=4, markersize=4, label=agent)
    last = f"Episodes of the last {(standing.track.steps or 0) // WINDOWS:,} steps"
    for axes, title in zip(both, (last, "Best program met so far"), strict=True):
        axes.set_yscale("log")
        axes.set_yticks(TICKS, [f"≤{100 * LEAST:g} %", *(f"{100 * tick:g} %" for tick in TICKS[1:])])
        axes.set_title(title)
        axes.set_xlabel("steps")
    both[0].set_ylabel("slower than the best")
    both[1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    figure.tight_layout()
    style.save(figure, path)
    return path
