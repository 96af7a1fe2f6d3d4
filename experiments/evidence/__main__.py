"""Make the pages, figures and tables of a device's evidence: `python -m experiments.evidence [FOLDER]`.

`python -m experiments.evidence take FOLDER [DATE]` first puts what a lease brought home where its pages are made of.

FOLDER (by default results/h100) holds the raw files of runs of `make gpu` in `raw`; everything else in it, and the recorded
tables of the machine that are shipped with the package, is made from them. The same files give the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.commands.parser import Parser
from experiments.commands.refusal import exit_code
from experiments.common.settings import ROOT
from experiments.evidence import correctness, device_searches, index, later_run, libraries, model, predictions, searches
from experiments.evidence.facts import FILE, RAW, read_facts
from experiments.evidence.lease import take
from experiments.evidence.tables import write_tables
from gensor_gym.hardware.described import RECORDINGS

FOLDER = ROOT / "results" / "h100"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status: 2 for what cannot be made. `take` is a command of its own (see `take`)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["take"]:
        return take.main(given[1:])
    args = _parser().parse_args(given)
    return exit_code(lambda: make(args.folder, args.recordings, args.study, args.predict))


def make(folder: Path, recordings: Path = RECORDINGS, study: Path | None = None, predict: bool = False) -> None:
    """Tables first, since the searches are told with them, then every page; ValueError names what is missing.

    A card that has days alone, and nothing else in its folder, has their pages alone.
    """
    if not (folder / RAW / FILE).exists() and (made := later_run.write(folder)):
        print(f"{folder}: {', '.join(made)}")
        return
    facts = read_facts(folder)
    for about in write_tables(folder, facts, recordings / facts.machine):
        print(f"{about['operator']}: {about['schedules']} schedules, {about['optimum']['tied']} tied with the best")
    if study is not None:
        searches.pack(study, folder)
    if predict:
        predictions.predict(folder, facts)
    made = [name for page in (correctness, libraries, model, device_searches) for name in page.write(folder, facts)]
    made += searches.write(folder, facts, recordings)
    made += later_run.write(folder)
    made += index.write(folder, facts)
    print(f"{folder}: {', '.join(made)}")


def _parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = Parser(prog="python -m experiments.evidence", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, help="default: results/h100")
    parser.add_argument("--recordings", type=Path, default=RECORDINGS, help="default: the tables that are shipped")
    parser.add_argument("--study", type=Path, help="pack the trials of this study (experiment=recorded_h100) first")
    parser.add_argument("--predict", action="store_true", help="ask today's model about the recorded programs first")
    return parser


if __name__ == "__main__":
    sys.exit(main())
