"""Make the pages, figures and tables of a device's evidence: `python -m experiments.evidence [FOLDER]`.

FOLDER (by default results/h100) holds the raw files of runs of `make gpu` in `raw`; everything else in it, and the recorded
tables of the machine that are shipped with the package, is made from them. The same files give the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.evidence.facts import read_facts
from experiments.evidence.tables import write_tables
from experiments.settings import ROOT
from gensor_gym.hardware.described import RECORDINGS

FOLDER = ROOT / "results" / "h100"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status: 2 for what cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m experiments.evidence", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, help="default: results/h100")
    parser.add_argument("--recordings", type=Path, default=RECORDINGS, help="default: the tables that are shipped")
    args = parser.parse_args(arguments)
    try:
        facts = read_facts(args.folder)
        for about in write_tables(args.folder, facts, args.recordings / facts.machine):
            print(f"{about['operator']}: {about['schedules']} schedules, {about['optimum']['tied']} tied with the best")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
