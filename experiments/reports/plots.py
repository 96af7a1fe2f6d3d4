"""Interactive plots with Bokeh, whose script adds 1.3 MB to a page and needs no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bokeh.models import ColumnDataSource, FactorRange, HoverTool
from bokeh.models.annotations import Legend, LegendItem, Whisker
from bokeh.plotting import figure

from agents.runs.sheets.screen import words
from agents.training import curves
from experiments import statistics
from experiments.common import style
from experiments.studies.scores import mean as mean_of
from gensor_gym.measure.stats.intervals import LEVEL

Item = tuple[str, list[Any]]
"""(text, renderers) of a legend's entry."""
DASHES = ("solid", "dashed", "dotted")
LABEL = 22
"""Most characters per line of a label next to an axis."""
TOOLS = "pan,box_zoom,reset"


def learning(groups: Mapping[str, Sequence[curves.Run]]) -> figure:
    """Plot of mean return against steps, a line for each configuration; with several seeds, a 95 % interval of the mean."""
    plot = _figure("steps of the environment", "mean return of an episode", 340)
    items: list[Item] = []
    for number, (label, runs) in enumerate(groups.items()):
        colour, dash = style.PALETTE[number % len(style.PALETTE)], DASHES[number // len(style.PALETTE) % len(DASHES)]
        steps, returns = curves.common(runs)
        mean = returns.mean(axis=0)
        low, high = statistics.bootstrap(mean_of, returns[None], resamples=500) if len(runs) > 1 else (mean, mean)
        line = plot.line("steps", "mean", source=ColumnDataSource({
            "steps": steps, "mean": mean, "low": low, "high": high,
            "label": [label] * len(steps), "seeds": [len(runs)] * len(steps),
        }), color=colour, line_dash=dash, line_width=2)  # fmt: skip
        if len(runs) > 1:
            plot.varea("steps", "low", "high", source=line.data_source, fill_color=colour, fill_alpha=0.15)
        items.append((label, [line]))
    rows = [
        ("", "@label"), ("steps", "@steps{0,0}"), ("mean return", "@mean{0.000}"), (LEVEL, "@low{0.000} to @high{0.000}"),
        ("seeds", "@seeds"),
    ]  # fmt: skip
    plot.add_tools(HoverTool(tooltips=rows, renderers=[line for _, lines in items for line in lines]))
    return _with_legend(plot, items)


def regrets(strategies: Mapping[str, Sequence[Mapping[str, float]]], counts: Sequence[int], what: str) -> figure:
    """Plot of regret in percent against the number of trials or evaluations, a line for each strategy."""
    plot = _figure(what, "regret, %", 340, x_axis_type="log")
    plot.xaxis.ticker = list(counts)
    plot.xaxis.major_label_overrides = {count: f"{count:,}" for count in counts}
    looks, items = style.look(list(strategies)), list[Item]()
    for name, found in strategies.items():
        data = {end: [100 * one[end] for one in found] for end in ("mean", "low", "high")}
        source = ColumnDataSource({"count": list(counts), "name": [name] * len(counts), **data})
        line = plot.line("count", "mean", source=source, color=looks[name][0], line_width=2)
        points = plot.scatter("count", "mean", source=source, color=looks[name][0], size=7)
        items.append((name, [line, points]))
    rows = [("", "@name"), (what, "@count{0,0}"), ("regret", "@mean{0.0} %"), (LEVEL, "@low{0.0} to @high{0.0} %")]
    plot.add_tools(HoverTool(tooltips=rows, renderers=[parts[1] for _, parts in items]))
    return _with_legend(plot, items)


def times(rows: Sequence[Mapping[str, Any]]) -> figure:
    """Plot of times relative to the best time of the same task: a point with its interval for each search.

    A row has task, strategy, seed, run, `gap` {"median", "low", "high"} (1 for the best), `time` and `over_torch` as text.
    """
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    places = _places(tasks)
    factors = FactorRange(factors=[*reversed(places.values())])
    plot = _figure("time over the best of the same operator", "", 110 + 46 * len(tasks), y_range=factors)
    names = list(dict.fromkeys(row["strategy"] for row in rows))
    looks, items = style.look(names), list[Item]()
    for number, name in enumerate(names):
        mine = [row for row in rows if row["strategy"] == name]
        shift = 0.5 * ((number + 0.5) / len(names) - 0.5)
        source = ColumnDataSource({
            **{end: [row["gap"][end] for row in mine] for end in ("median", "low", "high")},
            **{key: [row[key] for row in mine] for key in ("task", "strategy", "seed", "run", "time", "over_torch")},
            "place": [(places[row["task"]], shift) for row in mine],
        })  # fmt: skip
        colour = looks[name][0]
        plot.add_layout(Whisker(base="place", lower="low", upper="high", source=source, dimension="width", line_color=colour,
                                upper_head=None, lower_head=None))  # fmt: skip
        items.append((name, [plot.scatter("median", "place", source=source, color=colour, size=8)]))
    said = [("", "@strategy, seed @seed"), ("operator", "@task"), ("time", "@time"), ("over torch", "@over_torch"),
            ("over the best", "@median{0.000}"), ("run", "@run")]  # fmt: skip
    plot.add_tools(HoverTool(tooltips=said))
    return _with_legend(plot, items)


def _cut(text: str, most: int) -> str:
    """The text cut to `most` characters, to fit a small screen; the tooltip shows the whole text."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _places(tasks: Sequence[str]) -> dict[str, str]:
    """Distinct axis labels of tasks. If two labels are equal, the later one gets a number."""
    found: dict[str, str] = {}
    for number, task in enumerate(tasks, 1):
        label = _lines(task)
        found[task] = f"{label} ({number})" if label in found.values() else label
    return found


def _lines(task: str) -> str:
    """An operator's text on at most three lines."""
    first, *others = (_cut(line, LABEL) for line in words(style.plain(task), LABEL))
    return "\n".join([first, *others[:1], *(["…"] if len(others) > 1 else [])])


def _figure(x: str, y: str, height: int, **more: Any) -> figure:
    """An empty figure as wide as the page, with a transparent background; static/colours.js sets its line and text colours."""
    plot = figure(
        sizing_mode="stretch_width", height=height, tools=TOOLS, toolbar_location="above", x_axis_label=x, y_axis_label=y,
        background_fill_color=None, border_fill_color=None, outline_line_color=None, **more,
    )  # fmt: skip
    plot.toolbar.logo = None
    return plot


def _with_legend(plot: figure, items: Sequence[Item]) -> figure:
    """Add a legend below the plot whose entries hide their lines when clicked."""
    legend = Legend(
        items=[LegendItem(label={"value": _cut(name, 24)}, renderers=parts) for name, parts in items], click_policy="hide",
        orientation="horizontal", ncols=2, label_text_font_size="11px",
    )  # fmt: skip
    plot.add_layout(legend, "below")
    plot.height = (plot.height or 0) + 26 * (1 + len(items) // 2)
    return plot
