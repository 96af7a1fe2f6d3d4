"""Cases that may crash or hang, each run in its own process, and their outcomes as rows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import track

from agents.cli.parser import Parser
from agents.runs.journal import Journal
from agents.runs.results import write_text
from experiments.conformance.cases import STATUSES, Outcome

SECONDS = 300.0
"""Time limit of a case: export, compilation and a call."""
OUTPUT = Path(__file__).resolve().parents[2] / "results" / "conformance"


def arguments_of(parser: Parser, rows: Path) -> Parser:
    """Add the options `--one` and `--rows` to a parser and return it."""
    parser.add_argument("--one", metavar="CASE", help="a single case, whose outcome is printed")
    parser.add_argument("--rows", type=Path, default=rows)
    return parser


def apart(module: str, name: str, case: str, seconds: float = SECONDS) -> Outcome:
    """Run a case in its own process, `python -m MODULE --one CASE`, and return its outcome."""
    command = [sys.executable, "-m", module, "--one", case]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return Outcome(name, "error", f"not done after {seconds:g} s")
    if done.returncode:
        return Outcome(name, "error", done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "ended")
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def printed(outcome: Outcome) -> int:
    """Print an outcome for `apart` and return the exit status."""
    print(json.dumps(asdict(outcome)))
    return 0


def each_apart(
    cases: Mapping[str, str], module: str, rows: Path, page: Callable[[Sequence[Outcome]], str], seconds: float = SECONDS
) -> int:
    """Try the cases that are not in the rows; return 1 if a case is wrong or ends in an error of this project, otherwise 0.

    The page next to the rows is written after each case and says how many cases are left.
    """
    console = Console()
    with Journal(rows) as journal:
        for name, case in track(cases.items(), "modules", console=console, total=len(cases)):
            if name not in journal.rows:
                journal.add({"key": name, **asdict(apart(module, name, case, seconds))})
            found = [Outcome(row["name"], row["status"], row["said"]) for row in journal if row["key"] in cases]
            left = len(cases) - len(found)
            write_text(rows.with_suffix(".md"), page(found) + (f"\n{left} of {len(cases)} are left to try.\n" if left else ""))
    console.print(f"The table is in {rows.with_suffix('.md')}", soft_wrap=True)
    return int(any(one.status in ("wrong", "error") for one in found))


def not_right(found: Sequence[Outcome]) -> list[str]:
    """Lines of a Markdown table of failures, with their reasons."""
    said = {one.name: one.said.replace("|", "/").replace("\n", " ")[:200] for one in found}
    lines = [f"| {one.name} | {one.status} | {said[one.name]} |" for one in found if one.status != "right"]
    return ["", "## Not right", "", "| module | | |", "|---|---|---|", *lines]


def counted(name: str, found: Iterable[Outcome]) -> tuple[str, ...]:
    """Row of a table with counts by status."""
    counts = Counter(one.status for one in found)
    return (name, *(str(counts[status]) for status in STATUSES))
