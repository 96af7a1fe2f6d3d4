"""Make the pages and tables of a device's evidence: `python -m experiments.evidence [FOLDER]`.

`python -m experiments.evidence take FOLDER [DATE]` first copies the files of a lease to the raw folder.

FOLDER (by default results/h100) holds the raw files of runs of `make gpu` in `raw`; the pages of its days, and the shipped
recorded tables of the machine, are made from them. The same files give the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from agents.cli.parser import Parser
from agents.cli.refusal import exit_code
from agents.runs.settings import ROOT
from experiments.evidence import later_run, lease
from experiments.evidence.facts import FILE, RAW, read_facts
from experiments.evidence.tables import write_tables
from gensor_gym.hardware.described import RECORDINGS

FOLDER = ROOT / "results" / "h100"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status: 2 if pages cannot be made. With `take` first, run `lease.main` instead."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["take"]:
        return lease.main(given[1:])
    args = _parser().parse_args(given)
    return exit_code(lambda: make(args.folder, args.recordings))


def make(folder: Path, recordings: Path = RECORDINGS) -> None:
    """Make the page of every day with results in a folder, and recorded tables if the folder has conditions for them.

    `recordings` is the folder of recorded tables. Raise ValueError that names a missing file.
    """
    days = later_run.write(folder)
    if (folder / RAW / FILE).exists() or not days:
        facts = read_facts(folder)
        for about in write_tables(folder, facts, recordings / facts.machine):
            print(f"{about['operator']}: {about['schedules']} schedules, {about['optimum']['tied']} tied with the best")
    print(f"{folder}: {', '.join(days)}")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m experiments.evidence", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, help="default: results/h100")
    parser.add_argument("--recordings", type=Path, default=RECORDINGS, help="default: the tables that are shipped")
    return parser


if __name__ == "__main__":
    sys.exit(main())
