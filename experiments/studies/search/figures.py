"""The figures of a study: regret against trials and seconds, performance profiles, probability of improvement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.common import style
from experiments.statistics import statistics
from experiments.studies.intervals import iqm
from experiments.studies.search.scores import Curves, Scores

RESAMPLES = 400
MOST_BANDS = 8
"""Strategies of which intervals are drawn; of more they hide each other, and stand in the tables."""
POINTS = 48
LARGEST = 1.0
"""Regret at which a profile ends: e times slower than the best."""
DASHES = (0, (4, 3))
LINES = ("-", "--", ":", "-.")
"""Of strategies that share a colour."""


def draw(scores: Scores, summary: dict[str, Any], reference: str, folder: Path, seconds: bool = True) -> list[str]:
    """Write all figures, the one over seconds if it is wanted; returns the names of the files."""
    with plt.rc_context(style.RC):
        return [
            _trials(scores, folder / "regret_by_trials.png"),
            *([_seconds(scores, folder / "regret_by_seconds.png")] if seconds else []),
            _profiles(scores, summary["checkpoints"], folder / "profiles.png"),
            _improvement(scores, summary, reference, folder / "improvement.png"),
        ]


def _lines(looks: dict[str, tuple[str, str]]) -> dict[str, str]:
    """Line style of every strategy: the first of a colour has a whole line."""
    colours = [colour for colour, _ in looks.values()]
    return {name: LINES[colours[:i].count(colours[i]) % len(LINES)] for i, name in enumerate(looks)}


def _bands(axes: Axes, looks: dict[str, tuple[str, str]], x: np.ndarray, curves: dict[str, np.ndarray]) -> None:
    """Interquartile means of curves [tasks, seeds, points], of a few strategies with their intervals."""
    lines = _lines(looks)
    for name, values in curves.items():
        colour, marker = looks[name]
        if len(curves) <= MOST_BANDS:
            low, high = statistics.bootstrap(iqm, values, resamples=RESAMPLES)
            axes.fill_between(x, 100 * low, 100 * high, color=colour, alpha=0.12, linewidth=0)
        every = max(1, len(x) // 8)
        axes.plot(
            x, 100 * iqm(values), color=colour, linestyle=lines[name], linewidth=1.6, marker=marker, markevery=every,
            markersize=4.5, label=name,
        )  # fmt: skip


def regret_figure(figure: Figure, axes: Axes, label: str, path: Path) -> str:
    """Write a figure of regret: both axes logarithmic, regret linear below one percent; returns the file's name."""
    axes.set_xscale("log")
    axes.set_xlabel(label)
    axes.set_yscale("symlog", linthresh=1.0, linscale=0.5)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    axes.set_ylabel("regret, interquartile mean")
    return _finish(figure, axes, path)


def _finish(figure: Figure, axes: Axes, path: Path) -> str:
    """A legend beside the axes, the file."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return style.save(figure, path)


def profile_thresholds() -> np.ndarray:
    """Regrets at which a performance profile is read off, float64 [61]."""
    return np.concatenate([[0.0], np.geomspace(0.002, LARGEST, 60)])


def profile_axes(axes: Axes, title: str) -> None:
    """Share of the searches over regret, both in per cent, regret linear below one."""
    axes.set_xscale("symlog", linthresh=1.0, linscale=0.5)
    axes.set_xlim(0, 100 * LARGEST)
    axes.set_ylim(0, 1.02)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.set_title(title)
    axes.set_xlabel("regret of at most")


def _trials(scores: Scores, path: Path) -> str:
    """Regret against trials."""
    length = scores.chance.shape[1]
    x = np.unique(np.geomspace(1, length, POINTS).astype(int))
    figure, axes = plt.subplots(figsize=(7.4, 4.6))
    _bands(axes, style.look(list(scores.strategies)), x, {name: c.regret[..., x - 1] for name, c in scores.curves.items()})
    if np.isfinite(scores.chance).all():
        zero = np.array([statistics.interquartile_best(scores.regrets, int(k)) for k in x])
        axes.plot(x, 100 * zero, color=style.INK, linestyle=DASHES, linewidth=1.3, label="drawing at random")
    return regret_figure(figure, axes, "trials (different kernels)", path)


def _seconds(scores: Scores, path: Path) -> str:
    """Regret against seconds of search and recorded measurement."""
    ends = np.concatenate([c.elapsed[..., (0, -1)].reshape(-1, 2) for c in scores.curves.values()])
    x = np.geomspace(max(1e-3, float(np.quantile(ends[:, 0], 0.5))), float(ends[:, 1].max()), POINTS)
    figure, axes = plt.subplots(figsize=(7.4, 4.6))
    _bands(axes, style.look(list(scores.strategies)), x, {name: at_seconds(c, x) for name, c in scores.curves.items()})
    return regret_figure(figure, axes, "seconds of search and recorded measurement", path)


def at_seconds(curves: Curves, x: np.ndarray) -> np.ndarray:
    """Regret of the best known at each of the times, float64 [tasks, seeds, times]; before the first trial that of the worst.

    The worst stands for a task: the largest regret that any of its curves begins with.
    """
    tasks, seeds, _ = curves.regret.shape
    found = np.empty((tasks, seeds, len(x)))
    for i in range(tasks):
        nothing = curves.regret[i, :, 0].max()
        for j in range(seeds):
            done = np.searchsorted(curves.elapsed[i, j], x, side="right")
            found[i, j] = np.where(done > 0, curves.regret[i, j, np.maximum(done - 1, 0)], nothing)
    return found


def _profiles(scores: Scores, checkpoints: list[int], path: Path) -> str:
    """Share of the searches within a regret, a panel for each checkpoint."""
    thresholds = profile_thresholds()
    looks = style.look(list(scores.strategies))
    columns = min(2, len(checkpoints))
    lines = -(-len(checkpoints) // columns)
    figure, grid = plt.subplots(lines, columns, figsize=(4.4 * columns, 3.1 * lines + 0.5), squeeze=False, layout="constrained")
    for axes, k in zip(grid.flat, checkpoints, strict=False):
        for name, curves in scores.curves.items():
            share = statistics.performance_profile(curves.regret[..., k - 1], thresholds)
            axes.step(100 * thresholds, share, color=looks[name][0], linestyle=_lines(looks)[name], where="post", label=name)
        profile_axes(axes, f"after {k} trials")
    for axes in grid[:, 0]:
        axes.set_ylabel("of the searches")
    for axes in grid.flat[len(checkpoints) :]:
        axes.set_visible(False)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=min(5, len(looks)))
    return style.save(figure, path)


def _improvement(scores: Scores, summary: dict[str, Any], reference: str, path: Path) -> str:
    """Probability of improvement over the reference with its interval, a group of dots for each strategy."""
    names = [name for name in scores.strategies if reference in summary["strategies"][name].get("over", {})]
    checkpoints = summary["checkpoints"]
    figure, axes = plt.subplots(figsize=(7.0, 1.2 + 0.2 * len(names) * (len(checkpoints) + 1)))
    shades = plt.get_cmap("viridis")(np.linspace(0.1, 0.85, len(checkpoints)))
    for row, name in enumerate(names):
        for k, value in enumerate(summary["strategies"][name]["over"][reference]):
            y = row * (len(checkpoints) + 1) + k
            axes.plot([value["improves_low"], value["improves_high"]], [y, y], color=shades[k], linewidth=2.2, alpha=0.6)
            label = f"after {checkpoints[k]} trials" if row == 0 else None
            axes.plot(value["improves"], y, "o", color=shades[k], markersize=5.5, markeredgecolor="white", label=label)
    axes.axvline(0.5, color=style.INK, linestyle=DASHES, linewidth=1.1, zorder=1)
    axes.set_yticks([row * (len(checkpoints) + 1) + (len(checkpoints) - 1) / 2 for row in range(len(names))], names)
    axes.set_ylim(max(1, len(names)) * (len(checkpoints) + 1) - 1.0, -1.0)
    axes.set_xlim(0, 1)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.set_xlabel(f"probability of a lower regret than {reference}")
    return _finish(figure, axes, path) if names else style.save(figure, path)
