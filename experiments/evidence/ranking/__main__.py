"""Ranking of executed programs by the model of a GPU: `python -m experiments.evidence.ranking PAGE [--parts train validation]`.

The test part is scored only if it is named: it must not be looked at while the model is still developed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from agents.cli.parser import Parser
from agents.cli.refusal import exit_code
from agents.runs.files import write_text
from agents.runs.settings import ROOT
from experiments.device.stages.candidates import FIRST_CHOICES, top
from experiments.evidence.facts import read_facts
from experiments.evidence.ranking.measured import EVERY, FITTED, raced, recorded
from experiments.evidence.ranking.page import COMMAND, markdown
from experiments.evidence.ranking.scores import FIRST, by_class, left_out, scored
from gensor_gym import hardware

FOLDER = ROOT / "results" / "h100"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status: 2 if there is nothing to score."""
    args = _parser().parse_args(arguments)
    if args.choices:
        return exit_code(lambda: choose(args.folder))
    return exit_code(lambda: write(args.page, args.folder, args.parts, args.title, args.left_out))


def write(page: Path | None, folder: Path, parts: Sequence[str], title: str, with_left_out: bool) -> None:
    """Score the model and write the page; ValueError names a missing file."""
    if page is None:
        raise ValueError("page: expected a file to write, or --choices")
    machine = read_facts(folder).machine
    tables, candidates = recorded(folder, machine, parts), raced(folder, machine, parts)
    left = left_out([table for table in tables if table.part in FITTED]) if with_left_out else {}
    on_tables, on_candidates = ([scored(one) for one in them] for them in (tables, candidates))
    fitted = [one for one in on_tables if one.measured.part in FITTED]
    text = markdown(title, on_tables, on_candidates, by_class(fitted), left)
    write_text(page, text)
    print(text.partition("## Recorded")[0])


def choose(folder: Path) -> None:
    """Write the model's first choices for every operator that was raced with libraries, so that a device can try them."""
    machine = read_facts(folder).machine
    texts = [one.operator for one in raced(folder, machine, EVERY)]
    found = {text: list(map(str, top(text, hardware.get(machine), FIRST))) for text in texts}
    write_text(FIRST_CHOICES, json.dumps({machine: found}, indent=1) + "\n")


def _parser() -> argparse.ArgumentParser:
    """Parser of the command's arguments."""
    parser = Parser(prog=COMMAND, description=__doc__)
    parser.add_argument("page", type=Path, nargs="?", help="where the page is written")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="default: results/h100")
    parser.add_argument("--parts", nargs="+", choices=EVERY, default=list(FITTED), help="parts of the split that are scored")
    parser.add_argument("--title", default="How the model ranks", help="the page's title")
    parser.add_argument("--left-out", action="store_true", help="fit the coefficients of the terms without each class as well")
    words = f"write {FIRST_CHOICES.name} instead, which stage `operators` tries first"
    parser.add_argument("--choices", action="store_true", help=words)
    return parser


if __name__ == "__main__":
    sys.exit(main())
