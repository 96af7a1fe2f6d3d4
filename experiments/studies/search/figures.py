"""Figures of a study: regret over trials and seconds, performance profiles, probability of improvement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from experiments.common import style
from experiments.statistics import statistics
from experiments.studies.figures import DASHES, LINES, bands, profiles, regret_figure, with_legend
from experiments.studies.search.scores import Curves, Scores

MOST_BANDS = 8
"""Most strategies for which intervals are drawn; with more, the intervals would hide each other."""
POINTS = 48


def draw(scores: Scores, summary: dict[str, Any], reference: str, folder: Path) -> list[str]:
    """Write all figures; return the file names."""
    looks = style.look(list(scores.strategies))
    colours = [colour for colour, _ in looks.values()]
    dashes = [LINES[colours[:i].count(colour) % len(LINES)] for i, colour in enumerate(colours)]
    lines = {name: {"color": looks[name][0], "linestyle": dash} for name, dash in zip(looks, dashes, strict=True)}
    panels = {
        f"after {k} trials": {name: curves.regret[..., k - 1] for name, curves in scores.curves.items()}
        for k in summary["checkpoints"]
    }
    return [
        _trials(scores, lines, folder / "regret_by_trials.png"),
        _seconds(scores, lines, folder / "regret_by_seconds.png"),
        profiles(panels, lines, min(2, len(panels)), 5, folder / "profiles.png"),
        _improvement(scores, summary, reference, folder / "improvement.png"),
    ]


def _bands(lines: dict[str, dict[str, Any]], x: np.ndarray, curves: dict[str, np.ndarray]) -> tuple[plt.Figure, plt.Axes]:
    """Draw interquartile means of curves [tasks, seeds, points], with intervals if the curves are few; return (figure, axes)."""
    points = {"linewidth": 1.6, "markevery": max(1, len(x) // 8)}
    marked = {name: {**lines[name], **points, "marker": marker} for name, (_, marker) in style.look(list(curves)).items()}
    return bands(x, curves, marked, False, 0.12 if len(curves) <= MOST_BANDS else 0.0)


def _trials(scores: Scores, lines: dict[str, dict[str, Any]], path: Path) -> str:
    """Draw regret over trials; return the file name."""
    x = np.unique(np.geomspace(1, scores.chance.shape[1], POINTS).astype(int))
    figure, axes = _bands(lines, x, {name: curves.regret[..., x - 1] for name, curves in scores.curves.items()})
    if np.isfinite(scores.chance).all():
        zero = np.array([statistics.interquartile_best(scores.regrets, int(k)) for k in x])
        axes.plot(x, 100 * zero, color=style.INK, linestyle=DASHES, linewidth=1.3, label="drawing at random")
    return regret_figure(figure, axes, "trials (different kernels)", path)


def _seconds(scores: Scores, lines: dict[str, dict[str, Any]], path: Path) -> str:
    """Draw regret over seconds of search and recorded measurement; return the file name."""
    ends = np.concatenate([c.elapsed[..., (0, -1)].reshape(-1, 2) for c in scores.curves.values()])
    x = np.geomspace(max(1e-3, float(np.quantile(ends[:, 0], 0.5))), float(ends[:, 1].max()), POINTS)
    figure, axes = _bands(lines, x, {name: at_seconds(curves, x) for name, curves in scores.curves.items()})
    return regret_figure(figure, axes, "seconds of search and recorded measurement", path)


def at_seconds(curves: Curves, x: np.ndarray) -> np.ndarray:
    """Regret of the best program so far at the times `x`, float64 [tasks, seeds, times].

    Before its first trial, a search has the largest initial regret of all curves of the task.
    """
    tasks, seeds, _ = curves.regret.shape
    found = np.empty((tasks, seeds, len(x)))
    for i, j in np.ndindex(tasks, seeds):
        done = np.searchsorted(curves.elapsed[i, j], x, side="right")
        found[i, j] = np.where(done > 0, curves.regret[i, j, np.maximum(done - 1, 0)], curves.regret[i, :, 0].max())
    return found


def _improvement(scores: Scores, summary: dict[str, Any], reference: str, path: Path) -> str:
    """Draw the probability of improvement over the reference with its interval, in groups by strategy; return the file name."""
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
    return with_legend(figure, axes, path) if names else style.save(figure, path)
