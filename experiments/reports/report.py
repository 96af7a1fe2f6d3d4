"""Gather all results on one page: `gensor report [FOLDER ..] [--output FILE]`.

The results below the folders are training runs (card.json next to curve.jsonl), comparisons and studies (summary.json), and all
Markdown pages that commands wrote, with their figures. Seeds of one configuration are one line of a plot, and the comparisons
of a multirun share a table. The page is one self-contained HTML file, in which plots show details at the pointer and a click on
a heading sorts a table.
"""

from __future__ import annotations

import argparse
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from agents.cli.parser import Parser
from agents.policies.card import CARD
from agents.runs.files import make_folder, write_text
from agents.runs.sheets.cells import Given, as_cell, percent_interval
from agents.training import curves
from experiments.comparison.table import COLUMNS, cells
from experiments.comparison.winners import overall_sentence, sentence, source, winner
from experiments.reports import page as plots
from experiments.reports.page import Page, from_markdown, table
from gensor_gym.foreign import read_json

# Sections of the page: plots and tables of training runs, comparisons and studies.

HEAD = ("configuration", "seeds", "steps", "last return", "training", "evaluation on validation")
MOST = 60
"""Largest number of tasks in one plot."""


def learning(page: Page, folders: Sequence[Path]) -> str:
    """Return the HTML about training runs: a plot and a table for each hardware model and each recorded kernel."""
    runs = [curves.read_run(folder) for folder in folders]
    parts = []
    for place in sorted({_place(run) for run in runs}):
        groups = curves.group(run for run in runs if _place(run) == place)
        parts += [f"<h3>{html.escape(place)}</h3>", page.plot(plots.learning(groups)), table(HEAD, curves.rows(groups))]
    return "".join(parts)


def _place(run: curves.Run) -> str:
    """Return what a run was trained on, in words: a hardware model, or the recordings of a kernel."""
    if "kernel" in run.card:
        return f"recordings of {run.card['kernel']}"
    return str(run.card.get("config", {}).get("env", {}).get("hardware", "hardware not stated"))


def compared(page: Page, found: Mapping[Path, Mapping[str, Any]]) -> str:
    """Return the HTML about comparisons: plots, and a table of all their searches; ValueError names an invalid summary."""
    lines: list[list[Given]] = []
    points: list[dict[str, Any]] = []
    for folder, summary in found.items():
        try:
            for row in summary["rows"]:
                shown = cells(row)
                lines.append([row["operator"], *shown, str(row["seed"]), summary["hardware"], summary["device"], str(folder)])
                if row["gap_to_best"]:
                    points.append(_point(row, summary, folder))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{folder}/summary.json is not as experiments.compare writes it ({error!r})") from error
    parts = []
    for hardware in dict.fromkeys(point["hardware"] for point in points):
        mine = [point for point in points if point["hardware"] == hardware]
        tasks = list(dict.fromkeys(point["task"] for point in mine))[:MOST]
        parts += [f"<h3>{html.escape(hardware)}</h3>", page.plot(plots.times([p for p in mine if p["task"] in tasks]))]
    won = "".join(winners(folder, summary) for folder, summary in found.items())
    return won + "".join(parts) + varying(("operator", *COLUMNS, "seed", "hardware", "device", "run"), lines)


def varying(head: Sequence[str], lines: Sequence[Sequence[Given]]) -> str:
    """Return the HTML of a table without the columns whose cells are all equal, and before it a line with their values."""
    columns = list(zip(head, zip(*lines, strict=True), strict=True)) if len(lines) > 1 else []
    same = {name: as_cell(cells[0]).text for name, cells in columns if len({as_cell(cell).text for cell in cells}) == 1}
    kept = [place for place, name in enumerate(head) if name not in same]
    said = ", ".join(f"{name} {text}" for name, text in same.items() if text != "-")
    note = f'<p class="source">All searches: {html.escape(said)}.</p>' if said else ""
    return note + table([head[place] for place in kept], ([line[place] for place in kept] for line in lines))


def winners(folder: Path, summary: Mapping[str, Any]) -> str:
    """Return the HTML that comes first for a comparison: the verdict of each operator, with its schedule and source to unfold."""
    verdict = html.escape(overall_sentence(summary).replace("**", "").replace("`", "")) if "strategies" in summary else ""
    parts = [f"<p>{verdict}</p>"] if verdict else []
    for operator in list(dict.fromkeys(row["operator"] for row in summary["rows"]))[:MOST]:
        best = winner(summary, operator)
        head = f"<strong>{html.escape(operator)}</strong> {html.escape(sentence(summary, operator))}"
        if best is None or not best.get("schedule"):
            parts.append(f"<p>{head}</p>")
            continue
        text = source(summary, best)
        code = f"<pre>{html.escape(text)}</pre>" if text else ""
        schedule = f"<p>Schedule <code>{html.escape(str(best['schedule']))}</code></p>"
        parts.append(f"<details><summary>{head}</summary>{schedule}{code}</details>")
    return f'<div class="winners"><p class="source">{html.escape(str(folder))}</p>{"".join(parts)}</div>'


def _point(row: Mapping[str, Any], summary: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    shown = dict(zip(COLUMNS, cells(dict(row)), strict=True))
    text = {name: cell if isinstance(cell, str) else cell.text for name, cell in shown.items()}
    return {
        "task": str(row["operator"]), "strategy": str(row["strategy"]), "seed": row["seed"], "run": str(folder),
        "gap": row["gap_to_best"], "time": text["time"], "over_torch": text["over torch"], "hardware": str(summary["hardware"]),
    }  # fmt: skip


def study(page: Page, summary: Mapping[str, Any]) -> str:
    """Return the HTML about a study: a plot and a table of regrets by trials or evaluations.

    Raise ValueError if the summary is not one of a study.
    """
    try:
        what = "evaluations" if "evaluations" in summary else "trials"
        counts = [int(count) for count in summary["checkpoints"]]
        found = summary["strategies"]
        by_name = {name: line["regret"] for name, line in found.items()} if isinstance(found, dict) else summary["regret"]["all"]
        rows = [[name, *map(percent_interval, line)] for name, line in by_name.items()]
        return page.plot(plots.regrets(by_name, counts, what)) + table(("strategy", *(f"after {c:,}" for c in counts)), rows)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not as a study writes it ({error!r})") from error


SKIPPED = {".git", ".hydra", "wandb", "env", "site-packages", "node_modules"}
"""Names of folders that contain no results."""
SUMMARY = "summary.json"


def main(arguments: list[str] | None = None) -> None:
    """Gather the results, write the page and print its path; ValueError if there is nothing to show."""
    args = _parser().parse_args(arguments)
    console = Console()
    page = make_page([Path(folder) for folder in args.folders], args.title)
    output = Path(args.output)
    make_folder(output.parent)
    write_text(output, page.text())
    console.print(f"{output} ({output.stat().st_size / 1e6:.1f} MB)", soft_wrap=True, markup=False)


def make_page(folders: list[Path], title: str) -> Page:
    """Make the page of all results below the folders; raise ValueError that names a missing or invalid file."""
    found, page = gather(folders), Page(title)
    if found.trained:
        page.add("Learning curves", learning(page, found.trained))
    if found.comparisons:
        page.add("Comparisons", compared(page, found.comparisons))
    for folder, summary in found.studies.items():
        try:
            page.add(f"Study {folder.name}", study(page, summary), str(folder))
        except ValueError as error:
            raise ValueError(f"{folder}/summary.json is {error}") from error
    for path in found.pages:
        heading, body = from_markdown(path.read_text(encoding="utf-8"), path.parent)
        page.add(heading or path.stem, body, str(path))
    return page


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m experiments report", description="Gather results into one HTML page.")
    parser.add_argument("folders", nargs="*", default=["results"], help="folders with results, searched to their ends")
    parser.add_argument("--output", default="outputs/report.html", help="the page (default: %(default)s)")
    parser.add_argument("--title", default="gensor_gym: results", help="its title")
    return parser


@dataclass(frozen=True)
class Gathered:
    """Results that were found: folders of training runs, summaries of comparisons and studies by folder, Markdown pages."""

    trained: tuple[Path, ...]
    comparisons: dict[Path, dict[str, Any]]
    studies: dict[Path, dict[str, Any]]
    pages: tuple[Path, ...]


def gather(folders: Sequence[Path]) -> Gathered:
    """Find all results below the folders, sorted by path.

    Raise ValueError if a folder is missing, a summary cannot be read, or nothing is found.
    """
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"folder {folder}: there is none; name folders of results, as outputs or results")
    files = sorted({path for folder in folders for path in walk(folder)})
    trained = tuple(path.parent for path in files if path.name == CARD and path.with_name("curve.jsonl").is_file())
    summaries = {path.parent: read_json(path, finite=False) for path in files if path.name == SUMMARY}
    pages = tuple(path for path in files if path.suffix == ".md")
    if not trained and not pages and not summaries:
        names = ", ".join(map(str, folders))
        raise ValueError(f"no results below {names}: expected card.json with curve.jsonl, summary.json, or Markdown pages")
    compared = {folder: found for folder, found in summaries.items() if isinstance(found.get("rows"), list)}
    studies = {folder: found for folder, found in summaries.items() if folder not in compared and "checkpoints" in found}
    return Gathered(trained, compared, studies, pages)


def walk(folder: Path) -> list[Path]:
    """Return the paths of files below a folder that may be results; links to folders are not followed."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            found += walk(path) if path.name not in SKIPPED and not path.is_symlink() else []
        elif path.name in (CARD, SUMMARY) or path.suffix == ".md":
            found.append(path)
    return found
