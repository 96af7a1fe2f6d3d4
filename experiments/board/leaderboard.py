"""Build the tables of results/suite/README.md from the entries of a frozen suite: `python -m experiments leaderboard`.

Every entry is verified first; an invalid entry ends the command. With `--folder` nothing is written: the command prints the rank
of that folder's entries among the shipped entries.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from agents.cli.parser import Parser
from agents.cli.refusal import exit_code
from experiments.board import entries, suite_page


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status: 2 for an invalid entry, or if `--check` finds that the page would change."""
    parser = Parser(prog="python -m experiments leaderboard", description="Verify entries, and build results/suite/README.md.")
    parser.add_argument("--frozen", default="v1", metavar="VERSION", help="of the suite")
    parser.add_argument("--folder", type=Path, help="of entries of your own: verify them and print where they stand")
    parser.add_argument("--check", action="store_true", help="write nothing; say whether the page is what would be built")
    args = parser.parse_args(arguments)
    return exit_code(lambda: _build(args))


def _build(args: argparse.Namespace) -> int:
    if args.folder is None:
        suite_page.build(args.frozen, entries.FOLDER, suite_page.PAGE, args.check)
    else:
        print("\n".join(suite_page.beside(args.frozen, args.folder, entries.FOLDER)))
    return 0
