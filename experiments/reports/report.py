"""One page of everything that was run: `python -m experiments.report [FOLDER ..] [--output FILE]`.

Below the folders are gathered: training runs (card.json beside curve.jsonl), whose learning curves are drawn together, seeds of
one configuration as one line; and all Markdown pages that studies, comparisons and tables wrote, with their figures. The page
is one HTML file that needs nothing else.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from rich.console import Console

from agents.policies.learned import CARD
from experiments.commands.parser import Parser
from experiments.common.folders import make_folder
from experiments.common.results import write_text
from experiments.reports.page import Page, from_markdown, image, table
from experiments.training import curves

HEAD = ("configuration", "seeds", "steps", "last return", "training", "evaluation on validation")
SKIPPED = {".git", ".hydra", "wandb", "env", "site-packages", "node_modules"}
"""Folders that hold no results."""


def main(arguments: list[str] | None = None) -> None:
    """Gather, write, say where; ValueError where there is nothing to show."""
    args = _parser().parse_args(arguments)
    console = Console()
    page = make_page([Path(folder) for folder in args.folders], args.title)
    output = Path(args.output)
    make_folder(output.parent)
    write_text(output, page.text())
    console.print(f"{output} ({output.stat().st_size / 1e6:.1f} MB)")


def make_page(folders: list[Path], title: str) -> Page:
    """The page of all that lies below the folders; ValueError where a folder is missing or nothing is found."""
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"folder {folder}: there is none; name folders of results, as outputs or results")
    files = sorted({path for folder in folders for path in walk(folder)})
    trained = [path.parent for path in files if path.name == CARD and path.with_name("curve.jsonl").is_file()]
    pages = [path for path in files if path.suffix == ".md"]
    if not trained and not pages:
        names = ", ".join(map(str, folders))
        raise ValueError(f"no results below {names}: expected card.json with curve.jsonl, or Markdown pages")
    page = Page(title)
    if trained:
        page.add("Learning curves", learning(trained))
    for path in pages:
        heading, body = from_markdown(path.read_text(), path.parent)
        page.add(heading or path.stem, body, str(path))
    return page


def learning(folders: list[Path]) -> str:
    """Figure and table of all training runs, those of one hardware model, or of one recorded kernel, together."""
    runs = [curves.read_run(folder) for folder in folders]
    parts = []
    for place in sorted({_place(run) for run in runs}):
        groups = curves.group(run for run in runs if _place(run) == place)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "curves.png"
            curves.draw(groups, path)
            parts.append(f"<h3>{place}</h3>{image(path, f'learning curves on {place}')}")
        parts.append(table(HEAD, curves.rows(groups)))
    return "".join(parts)


def _place(run: curves.Run) -> str:
    """The hardware model that a run was trained on, or the kernel whose recordings it learned in."""
    if "kernel" in run.card:
        return f"recordings of {run.card['kernel']}"
    return str(run.card.get("config", {}).get("env", {}).get("hardware", "hardware not stated"))


def walk(folder: Path) -> list[Path]:
    """Files below a folder that may be results."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name not in SKIPPED:
            found += walk(path)
        elif path.name == CARD or path.suffix == ".md":
            found.append(path)
    return found


def _parser() -> argparse.ArgumentParser:
    """Arguments of the command line."""
    parser = Parser(prog="python -m experiments.report", description="Gather results into one HTML page.")
    parser.add_argument("folders", nargs="*", default=["results"], help="folders with results, searched to their ends")
    parser.add_argument("--output", default="outputs/report.html", help="the page (default: %(default)s)")
    parser.add_argument("--title", default="gensor_gym: results", help="its title")
    return parser
