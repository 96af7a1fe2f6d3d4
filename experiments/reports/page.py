"""HTML page of results in one file: text, tables, embedded pictures, and plots with their scripts.

All content from files is escaped. The page's policy (`Content-Security-Policy`) allows only its own scripts, by their digests,
and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bokeh.embed import components
from bokeh.models import ColumnDataSource, FactorRange, HoverTool, Plot, Range1d
from bokeh.models.annotations import Legend, LegendItem, Whisker
from bokeh.plotting import figure
from bokeh.resources import Resources
from markdown_it import MarkdownIt

from agents.runs.sheets.cells import Given, as_cell
from agents.runs.sheets.screen import words
from agents.training import curves
from experiments.common import statistics, style
from experiments.common.style import dark_of
from experiments.studies.scores import mean as mean_of
from gensor_gym.measure.stats.intervals import LEVEL

STATIC = Path(__file__).parent / "static"
KINDS = {".png": "image/png", ".svg": "image/svg+xml", ".jpg": "image/jpeg"}


class Page:
    """HTML page under construction: sections are added, and `text` renders it."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._sections: list[tuple[str, str]] = []
        self._scripts: list[str] = []

    def add(self, title: str, body: str, source: str = "") -> None:
        """Add a section whose body is HTML; `source` says where its content comes from."""
        note = f'<p class="source">{html.escape(source)}</p>' if source else ""
        self._sections.append((title, note + body))

    def plot(self, figure: Plot) -> str:
        """Register a plot's script and return the HTML element that shows the plot."""
        script, place = components(figure, wrap_script=False)
        self._scripts.append(script)
        return f'<div class="plot">{place}</div>'

    def text(self) -> str:
        """Return the HTML of the whole page."""
        name = html.escape(self.title)
        links = "".join(f'<a href="#s{i}">{html.escape(title)}</a>' for i, (title, _) in enumerate(self._sections))
        parts = "".join(
            f'<section id="s{i}"><h2>{html.escape(title)}</h2>{body}</section>'
            for i, (title, body) in enumerate(self._sections)
        )
        scripts = [*self._plotting(), _static("sorting.js")]
        head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">'
        head += f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{name}</title>'
        return (
            f'<!doctype html><html lang="en"><head>{head}<style>{_static("page.css")}</style></head>'
            f"<body><nav><strong>{name}</strong>{links}</nav><main><h1>{name}</h1>{parts}</main>"
            + "".join(f"<script>{script}</script>" for script in scripts)
            + "</body></html>\n"
        )

    def _plotting(self) -> list[str]:
        """Return the scripts of the plots: Bokeh's library, a script for each plot, and the colours; none without plots."""
        if not self._scripts:
            return []
        library = "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)
        several = (library, *self._scripts, _static("colours.js"))  # escaped below, so that none ends its element early
        return [re.sub(r"</(?=script)", r"<\\/", script, flags=re.IGNORECASE) for script in several]


def _static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def _policy(scripts: Iterable[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}"


def table(head: Sequence[str], rows: Iterable[Sequence[Given]]) -> str:
    """Return the HTML of a table of texts and cells; a column of cells with numbers can be sorted by their first number."""
    titles = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(map(_data, row))}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'


def _data(given: Given) -> str:
    cell = as_cell(given)
    value = f' class="right" data-value="{cell.numbers[0]!r}"' if cell.numbers else ""
    return f"<td{value}>{html.escape(cell.text)}</td>"


def image(path: Path, words: str = "") -> str:
    """Return the HTML of a picture with its data, in its version for a dark page too if that exists.

    `words` is the alternative text. Raise ValueError if the file's format is not in `KINDS`.
    """
    if path.suffix not in KINDS:
        raise ValueError(f"picture {path}: expected one of {sorted(KINDS)}")
    shown = f'<img alt="{html.escape(words, quote=True)}" src="{_data_of(path)}">'
    if not (dark := dark_of(path)).is_file():
        return shown
    return f'<picture><source media="(prefers-color-scheme: dark)" srcset="{_data_of(dark)}">{shown}</picture>'


def _data_of(path: Path) -> str:
    return f"data:{KINDS[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"


def from_markdown(text: str, folder: Path) -> tuple[str, str]:
    """Turn a Markdown page into (title, HTML); its pictures, relative to `folder`, are embedded.

    A picture whose file is missing is named in the text instead.
    """
    title, _, rest = text.partition("\n")
    if not title.startswith("# "):
        title, rest = "", text
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(rest)

    def embedded(match: re.Match[str]) -> str:
        path, words = folder / html.unescape(match["path"]), html.unescape(match["words"])
        if path.is_file() and path.suffix in KINDS:
            return image(path, words)
        return f"<em>[{html.escape(words)}: {html.escape(str(path))}]</em>"

    body = re.sub(r'<img src="(?P<path>[^"]*)" alt="(?P<words>[^"]*)"[^>]*>', embedded, body)
    body = body.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")
    return title.removeprefix("# ").strip(), body


# Interactive plots with Bokeh, whose script adds 1.3 MB to a page and needs no network.

Item = tuple[str, list[Any]]
"""Entry of a legend: (text, renderers of the plot that belong to it)."""
DASHES = ("solid", "dashed", "dotted")
LABEL = 22
"""Largest number of characters per line of a label next to an axis."""
TOOLS = "pan,box_zoom,reset"


def learning(groups: Mapping[str, Sequence[curves.Run]]) -> figure:
    """Plot mean return over steps of training: a line for each configuration, with a 95 % interval if it has several seeds."""
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
    """Plot regret in percent over the number of trials or evaluations: a line for each strategy. `what` names the x axis."""
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
    """Plot times relative to the best time of the same task: a point with its interval for each search.

    A row has task, strategy, seed, run, `gap` {"median", "low", "high"} (1 for the best), `time` and `over_torch` as text.
    """
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    places = _places(tasks)
    factors = FactorRange(factors=[*reversed(places.values())])
    low, high = min(row["gap"]["low"] for row in rows), max(row["gap"]["high"] for row in rows)
    room = 0.04 * (high - low) or 0.04
    ends = {"y_range": factors, "x_range": Range1d(low - room, high + room)}  # whiskers do not widen a range by themselves
    plot = _figure("time over the best of the same operator", "", 110 + 46 * len(tasks), **ends)
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
    """Cut a text to `most` characters, so that it fits a small screen; the tooltip has the whole text."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _places(tasks: Sequence[str]) -> dict[str, str]:
    """Return a distinct axis label for each task; if two labels would be equal, the later one gets a number."""
    found: dict[str, str] = {}
    for number, task in enumerate(tasks, 1):
        label = _lines(task)
        found[task] = f"{label} ({number})" if label in found.values() else label
    return found


def _lines(task: str) -> str:
    """Break an operator's text into at most three lines."""
    first, *others = (_cut(line, LABEL) for line in words(style.plain(task), LABEL))
    return "\n".join([first, *others[:1], *(["…"] if len(others) > 1 else [])])


def _figure(x: str, y: str, height: int, **more: Any) -> figure:
    """Return an empty plot as wide as the page, with a transparent background.

    static/colours.js sets the colours of its lines and text.
    """
    plot = figure(
        sizing_mode="stretch_width", height=height, tools=TOOLS, toolbar_location="above", x_axis_label=x, y_axis_label=y,
        background_fill_color=None, border_fill_color=None, outline_line_color=None, **more,
    )  # fmt: skip
    plot.toolbar.logo = None
    return plot


def _with_legend(plot: figure, items: Sequence[Item]) -> figure:
    legend = Legend(
        items=[LegendItem(label={"value": _cut(name, 24)}, renderers=parts) for name, parts in items], click_policy="hide",
        orientation="horizontal", ncols=2, label_text_font_size="11px",
    )  # fmt: skip
    plot.add_layout(legend, "below")
    plot.height = (plot.height or 0) + 26 * (1 + len(items) // 2)
    return plot
