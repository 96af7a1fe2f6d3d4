"""Scores that studies share: best latencies along curves, statistics with intervals, and their tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from agents.runs.sheets.cells import percent_interval
from agents.runs.sheets.sheet import Sheet
from agents.runs.texts import interval_text, p_text, seconds_text, table
from experiments.common import statistics, style
from experiments.common.statistics import interquartile_mean as iqm

EVALUATIONS, SECONDS = 0, 2
"""Columns of a curve that hold costs: evaluations and seconds. Column 1 holds latencies."""


def mean(values: np.ndarray) -> np.ndarray:
    """Return the mean over tasks and seeds of values [tasks, seeds, ..]."""
    found: np.ndarray = values.mean(axis=(0, 1))
    return found


def interval(
    statistic: Callable[..., np.ndarray], values: np.ndarray, resamples: int, *others: np.ndarray, crossed: bool = True
) -> list[dict[str, float]]:
    """Return a statistic of values [tasks, seeds, K] with its bootstrap interval, as K dictionaries of mean, low and high.

    `others` are further arguments of the statistic. `crossed` says that a seed means the same policy on all tasks (see
    `statistics.bootstrap`).
    """
    low, high = statistics.bootstrap(statistic, values, *others, resamples=resamples, crossed=crossed)
    rows = zip(statistic(values, *others).tolist(), low.tolist(), high.tolist(), strict=True)
    return [dict(zip(("mean", "low", "high"), row, strict=True)) for row in rows]


def iqm_difference(ours: np.ndarray, other: np.ndarray, resamples: int) -> dict[str, float]:
    """Return the interquartile mean of our scores minus that of the others, both [tasks, seeds, 1], with its paired interval."""
    return interval(lambda ours, other: iqm(ours) - iqm(other), ours, resamples, other)[0]


def over(scores: Mapping[str, np.ndarray], other: str, resamples: int) -> dict[str, list[statistics.Line]]:
    """Return paired differences: for every name, its score [tasks, seeds, K] minus the score of `other`.

    A seed means the same policy on all tasks.
    """
    return statistics.against({name: of for name, of in scores.items() if name != other}, scores[other], resamples, crossed=True)


@dataclass(frozen=True)
class Curves:
    """Curves of searches: their rows [tasks, seeds] by name of the search.

    `best` and `start` [tasks] are the latencies, in seconds, of the best known and of the unscheduled programs.
    """

    lines: dict[str, np.ndarray]
    best: np.ndarray
    start: np.ndarray

    def regrets(self, name: str, at: np.ndarray | Sequence[float], column: int) -> np.ndarray:
        """Return log(T / T*) of a search's best programs when a column of its curve has reached each value of `at`.

        The result is [tasks, seeds, K]; T* is the best known latency.
        """
        found: np.ndarray = np.log(best_at(self.lines[name], self.start, at, column) / self.best[:, None, None])
        return found


def best_at(lines: np.ndarray, start: Sequence[float] | np.ndarray, at: np.ndarray | Sequence[float], column: int) -> np.ndarray:
    """Return the best latency of searches when a column of their curves has reached each value of `at`.

    The result is float64 [tasks, seeds, K]. `lines` are rows of searches, object [tasks, seeds]; `start` [tasks] are the
    latencies of the unscheduled programs; `at` is [K] or [tasks, seeds, K].
    """
    places = np.broadcast_to(np.asarray(at, dtype=float), (*lines.shape, np.shape(at)[-1]))
    found = np.empty(places.shape)
    for t, s in np.ndindex(lines.shape):
        curve: Any = lines[t, s]["curve"]
        ended = np.searchsorted(np.array(curve[column], dtype=float), places[t, s], side="right")
        found[t, s] = np.minimum.accumulate([start[t], *curve[1]])[ended]
    return found


# Tables shared by the pages of studies: means with intervals, and differences with p values.

Values = Mapping[str, Sequence[dict[str, float]]]
"""Name of a table's row -> its means with intervals, one for each column."""


def after(seconds: Sequence[float] = (), evaluations: Sequence[int] = ()) -> tuple[str, ...]:
    """Return column headings for times in seconds, then for numbers of evaluations."""
    return *map(seconds_text, seconds), *(f"{count} evaluations" for count in evaluations)


def _mean(value: dict[str, float]) -> str:
    return interval_text(value, 1)


def difference(value: Mapping[str, float], turned: bool = False) -> str:
    """Format a difference with its interval and p value; `turned` reverses its sign."""
    shown = {"mean": -value["mean"], "low": -value["high"], "high": -value["low"]} if turned else dict(value)
    return f"{interval_text(shown, 1, sign=True)}, p {p_text(value['p_holm'])}"


def intervals(head: Sequence[str], values: Values, text: Callable[[dict[str, float]], str] = _mean) -> list[str]:
    """Return the lines of a Markdown table with a row of values and intervals for each name.

    `text` formats a value: as a mean, or as a difference if it is `difference`.
    """
    return table(tuple(head), [(name, *map(text, of)) for name, of in values.items()])


def interval_sheet(title: str, head: Sequence[str], values: Mapping[Any, Any], notes: Sequence[str] = ()) -> Sheet:
    """Return a table of means with intervals; a row's name is a text, or a tuple of texts for the first columns."""
    names = {name: (name,) if isinstance(name, str) else name for name in values}
    return Sheet.of(title, head, [(*names[name], *map(percent_interval, of)) for name, of in values.items()], notes)


# Figures shared by the studies: curves of regret, performance profiles, heat maps.

RESAMPLES = 400
LARGEST = 1.0
"""Largest regret in a performance profile, 1: e times slower than the best."""
LINES = ("-", "--", ":", "-.")
DASHES = (0, (4, 3))
BROAD, THIN = 2.4, 1.4
"""Line widths in figures, for policies and for searches."""


def bands(
    x: np.ndarray, curves: Mapping[str, np.ndarray], lines: Mapping[str, Mapping[str, Any]], crossed: bool, alpha: float
) -> tuple[Figure, Axes]:
    """Draw interquartile means of regrets [tasks, seeds, points] over x in per cent; return (figure, axes).

    Intervals are drawn as bands of opacity `alpha`, unless it is 0. `lines` has the style of each name (`color` and so on).
    """
    figure, axes = plt.subplots(figsize=(7.4, 4.6))
    for name, values in curves.items():
        if alpha:
            low, high = statistics.bootstrap(iqm, values, resamples=RESAMPLES, crossed=crossed)
            axes.fill_between(x, 100 * low, 100 * high, color=lines[name]["color"], alpha=alpha, linewidth=0)
        axes.plot(x, 100 * iqm(values), markersize=4.5, label=name, **lines[name])
    return figure, axes


def regret_figure(figure: Figure, axes: Axes, label: str, path: Path) -> str:
    """Make both axes of a figure of regret logarithmic (regret linear below one per cent), write it, and return its file name."""
    axes.set_xscale("log")
    axes.set_xlabel(label)
    axes.set_yscale("symlog", linthresh=1.0, linscale=0.5)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    axes.set_ylabel("regret, interquartile mean")
    return with_legend(figure, axes, path)


def with_legend(figure: Figure, axes: Axes, path: Path) -> str:
    """Add a legend to the right of the axes, write the figure, and return its file name."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return style.save(figure, path)


def profiles(
    panels: Mapping[str, Mapping[str, np.ndarray]], lines: Mapping[str, Mapping[str, Any]], columns: int, across: int, path: Path
) -> str:
    """Draw performance profiles, a panel for each entry of `panels` (title -> name -> scores); write them, return the file name.

    `lines` has the style of each name, `columns` the number of panels in a row, and `across` that of names in a row of the
    legend.
    """
    thresholds = np.concatenate([[0.0], np.geomspace(0.002, LARGEST, 60)])
    rows = -(-len(panels) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(4.4 * columns, 3.1 * rows + 0.5), squeeze=False, layout="constrained")
    for axes, (title, scores) in zip(grid.flat, panels.items(), strict=False):
        for name, values in scores.items():
            share = statistics.performance_profile(values, thresholds)
            axes.step(100 * thresholds, share, where="post", label=name, **lines[name])
        axes.set_xscale("symlog", linthresh=1.0, linscale=0.5)
        axes.set_xlim(0, 100 * LARGEST)
        axes.set_ylim(0, 1.02)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g} %")
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        axes.set_title(title)
        axes.set_xlabel("regret of at most")
    for axes in grid[:, 0]:
        axes.set_ylabel("of the searches")
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=min(across, len(lines)))
    return style.save(figure, path)


def by_costs(
    widths: Mapping[str, float], parts: Mapping[int, tuple[str, float]], points: int,
    regret: Callable[[str, np.ndarray, int], np.ndarray],
) -> tuple[Figure, Sequence[Axes]]:  # fmt: skip
    """Draw regret against cost, with a panel for each column of the curves; return (figure, axes).

    `widths` are the line widths by name, and `parts` has (label, end) of the x axis by column. Each line has `points` costs with
    equal ratios, from one millisecond or one evaluation on; `regret(name, costs, column)` returns its regrets [K].
    """
    figure, panels = plt.subplots(1, len(parts), figsize=(9.6, 4.0), sharey=True)
    for axes, (column, (label, end)) in zip(panels, parts.items(), strict=True):
        at = np.geomspace(1e-3, end, points) if column == SECONDS else np.unique(np.geomspace(1, end, points).astype(int))
        for name, (colour, marker) in style.look(list(widths)).items():
            line: dict[str, Any] = {"color": colour, "marker": marker, "linewidth": widths[name], "label": name}
            axes.plot(at, regret(name, at, column), markevery=8, markersize=4.5, **line)
        axes.set_xscale("log")
        axes.set_xlabel(label)
    return figure, panels


def heat_map(
    values: np.ndarray, rows: Sequence[str], columns: Sequence[str], path: Path, *, title: str, below: str,
    bold: Collection[tuple[int, int]], gaps: Sequence[int], size: tuple[float, float], least: float, white_above: float,
    unit: str = "",
) -> str:  # fmt: skip
    """Draw a matrix [rows, columns] of per cents as a heat map with its numbers, write it, and return its file name.

    A NaN leaves a cell empty. `below` labels the axis of the columns, and `gaps` are the rows that have a gap above them. Colours
    are logarithmic and no paler than the colour of `least`; numbers above `white_above` are white, and those in `bold` bold.
    """
    figure, axes = plt.subplots(figsize=size)
    axes.grid(visible=False)
    colours = LogNorm(least, max(100.0, float(np.nanmax(values))))
    image = axes.imshow(np.maximum(values, least), cmap="viridis_r", norm=colours, aspect="auto")
    for i, j in zip(*np.nonzero(~np.isnan(values)), strict=True):
        weight, colour = "bold" if (i, j) in bold else "normal", "white" if values[i, j] > white_above else style.INK
        axes.text(j, i, f"{values[i, j]:.1f}{unit}", ha="center", va="center", color=colour, fontweight=weight)
    for row in gaps:
        axes.axhline(row - 0.5, color="white", linewidth=4)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(below)
    axes.set_title(title)
    figure.colorbar(image, ax=axes, format=f"%g{unit.replace('%', '%%')}", fraction=0.04)
    return style.save(figure, path)
