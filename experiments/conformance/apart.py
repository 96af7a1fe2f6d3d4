"""Cases that may crash or hang, each run in its own process, and their outcomes as rows."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import track

from agents.cli.parser import Parser
from agents.runs.files import write_text
from agents.runs.journal import Journal
from agents.runs.texts import table
from experiments.conformance.cases import STATUSES, Outcome

SECONDS = 300.0
"""Time limit of a case: export, compilation and a call."""
OUTPUT = Path(__file__).resolve().parents[2] / "results" / "conformance"


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


def command(
    parser: Parser, arguments: Sequence[str] | None, module: str, rows: Path, tried: Callable[[str], Outcome],
    cases: Callable[[Namespace], Mapping[str, str]], page: Callable[[Sequence[Outcome]], str], seconds: float = SECONDS,
) -> int:  # fmt: skip
    """Try the cases (name -> word for `tried`) that the rows lack; return 1 if a case is wrong or ends in our error, else 0.

    Each case is tried by `python -m MODULE --one CASE`, which prints its outcome. The page next to the rows is written after each
    case and says how many cases are left.
    """
    parser.add_argument("--one", metavar="CASE", help="a single case, whose outcome is printed")
    parser.add_argument("--rows", type=Path, default=rows)
    args, console = parser.parse_args(arguments), Console()
    if args.one:
        print(json.dumps(asdict(tried(args.one))))
        return 0
    asked, rows = cases(args), args.rows
    with Journal(rows) as journal:
        for name, case in track(asked.items(), "modules", console=console, total=len(asked)):
            if name not in journal.rows:
                journal.add({"key": name, **asdict(apart(module, name, case, seconds))})
            found = [Outcome(row["name"], row["status"], row["said"]) for row in journal if row["key"] in asked]
            left = len(asked) - len(found)
            write_text(rows.with_suffix(".md"), page(found) + (f"\n{left} of {len(asked)} are left to try.\n" if left else ""))
    console.print(f"The table is in {rows.with_suffix('.md')}", soft_wrap=True)
    return int(any(one.status in ("wrong", "error") for one in found))


def paged(lines: Sequence[str], head: tuple[str, ...], rows: Sequence[tuple[str, ...]], found: Sequence[Outcome]) -> str:
    """A Markdown page: lines, a table of counts, and each case that is not right with the reason."""
    said = {one.name: one.said.replace("|", "/").replace("\n", " ")[:200] for one in found}
    wrong = [f"| {one.name} | {one.status} | {said[one.name]} |" for one in found if one.status != "right"]
    counts = table(head, rows)
    return "\n".join([*lines, "", *counts, "", "## Not right", "", "| module | | |", "|---|---|---|", *wrong]) + "\n"


def counted(name: str, found: Iterable[Outcome]) -> tuple[str, ...]:
    """Row of a table with counts by status."""
    counts = Counter(one.status for one in found)
    return (name, *(str(counts[status]) for status in STATUSES))
