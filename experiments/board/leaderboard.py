"""Build the tables of docs/leaderboard.md from replay files: `python -m experiments.leaderboard`, `--check` to compare alone.

Every file below results/leaderboard is computed again first (`experiments.verify`), and must be one of the suite's tasks as
the suite has it. One that is not true ends the command.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.board import entries, suite_page
from experiments.board.replay_file import Outcome, fingerprint_of, verify_file
from experiments.board.submit import FOLDER
from experiments.board.suite import PARTS, SUITE, Suite, SuiteTask, read_suite
from experiments.board.verify import replay_files
from experiments.commands.parser import Parser
from experiments.commands.refusal import exit_code
from experiments.common.results import write_text
from experiments.common.settings import ROOT
from experiments.common.texts import table
from experiments.sheets.sheet import Sheet
from gensor_gym.fingerprint import common
from gensor_gym.measure.session import Budget

PAGE = ROOT / "docs" / "leaderboard.md"
BEGIN, END = "<!-- built by experiments.leaderboard -->", "<!-- end of what is built -->"

FROZEN = "build results/suite/README.md from the entries of a frozen suite, such as v1; with --folder print where those in it are"
COLUMNS = (
    "agent", "tasks", "times the fastest entry", "times the optimum, where known", "mean return", "steps", "trials",
    "model evaluations", "seed",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """What one agent's verified files say: outcomes and what was spent, by task."""

    name: str
    outcomes: Mapping[SuiteTask, Outcome]
    evaluations: int
    trials: int
    seed: int


def read_entries(folder: Path, suite: Suite) -> list[Entry]:
    """Verified entries by name.

    ValueError where a file is not true, not of the suite, in another agent's folder, or of other settings or another seed than
    the agent's other files.
    """
    files: dict[str, dict[SuiteTask, Path]] = {}
    for path in replay_files([folder]):
        by_name = {task.name: task for task in suite.tasks}
        if path.stem not in by_name or path.parent.parent != folder:
            raise ValueError(f"{path}: expected AGENT/TASK.jsonl, TASK being one of {', '.join(by_name)}")
        files.setdefault(path.parent.name, {})[by_name[path.stem]] = path
    return [_entry(name, tasks, suite) for name, tasks in sorted(files.items())]


def _entry(name: str, files: Mapping[SuiteTask, Path], suite: Suite) -> Entry:
    """One agent's files, verified."""
    outcomes: dict[SuiteTask, Outcome] = {}
    headers: list[Mapping[str, Any]] = []
    for task, path in files.items():
        verified = verify_file(path)
        header = verified.header
        arguments = header["arguments"]
        if set(arguments) - {*PARTS, "observation"} or {part: arguments[part] for part in PARTS} != task.arguments:
            raise ValueError(f"{path}, arguments: expected {task.arguments}, found {arguments}")
        if header["agent"]["name"] != name:
            raise ValueError(f"{path}, agent: expected {name!r} by the folder, found {header['agent']['name']!r}")
        _check_spent(path, header, suite.budget)
        if headers and (headers[0]["agent"], headers[0]["seed"]) != (header["agent"], header["seed"]):
            raise ValueError(f"{path}: agent, settings or seed are not those of its other files: an entry has one of each")
        outcomes[task] = verified.outcome
        headers.append(header)
    evaluations, trials = (sum(header[field] for header in headers) for field in ("evaluations", "trials"))
    return Entry(name, outcomes, evaluations, trials, headers[0]["seed"])


def _check_spent(path: Path, header: Mapping[str, Any], budget: Budget) -> None:
    """ValueError where a strategy had another budget than the suite's, or spent more; a policy has one trial and no budget."""
    searched = header["agent"]["strategy"] is not None
    allowed = vars(budget) if searched else None
    if header["budget"] != allowed:
        raise ValueError(f"{path}, budget: expected {allowed}, found {header['budget']}")
    most = {"trials": budget.trials if searched else 1, "evaluations": budget.evaluations if searched else None}
    for name, limit in most.items():
        if limit is not None and header[name] > limit:
            raise ValueError(f"{path}, {name}: expected at most {limit}, found {header[name]}")


def gaps(entries: Sequence[Entry], suite: Suite) -> dict[str, list[float]]:
    """log(T / T of the fastest entry) of every agent, in the order of the suite's tasks; inf where there is no program."""
    found: dict[str, list[float]] = {entry.name: [] for entry in entries}
    for task in suite.tasks:
        seconds = {e.name: _seconds(e.outcomes[task]) if task in e.outcomes else math.inf for e in entries}
        best = min(seconds.values(), default=math.inf)
        for name, value in seconds.items():
            found[name].append(math.log(value / best) if value < math.inf else math.inf)
    return found


def _seconds(outcome: Outcome) -> float:
    """Infinite where the program failed."""
    return outcome.seconds if outcome.status == "OK" else math.inf


def lines(entries: Sequence[Entry], suite: Suite) -> Iterator[str]:
    """Both tables as Markdown."""
    if not entries:
        yield "No entry yet."
        return
    ranked = _ranked(entries, suite)
    yield f"Fingerprint `{common(fingerprint_of(task.arguments) for task in suite.tasks)}`. {len(suite.tasks)} tasks."
    yield ""
    yield "| | " + " | ".join(COLUMNS) + " |"
    yield "|---:|---|" + "---:|" * (len(COLUMNS) - 1)
    for place, row in enumerate(sheet(entries, suite).rows, start=1):
        yield f"| {place} | {' | '.join(cell.text for cell in row)} |"
    yield ""
    yield from table(("task", *(entry.name for entry in ranked)), [
        (f"{task.hardware} {task.backend} {task.space}: `{task.operator}`", *(_cell(e.outcomes.get(task)) for e in ranked))
        for task in suite.tasks
    ])  # fmt: skip


def _ranked(entries: Sequence[Entry], suite: Suite) -> list[Entry]:
    """The best first."""
    apart = gaps(entries, suite)
    return sorted(entries, key=lambda entry: (sum(apart[entry.name]), entry.name))


def sheet(entries: Sequence[Entry], suite: Suite) -> Sheet:
    """The first table: a line for each agent, the best first."""
    apart = gaps(entries, suite)
    rows = (_summary(entry, apart[entry.name], len(suite.tasks)) for entry in _ranked(entries, suite))
    return Sheet.of("leaderboard", COLUMNS, rows)


def _summary(entry: Entry, apart: Sequence[float], tasks: int) -> tuple[str, ...]:
    """Cells of an agent's line."""
    outcomes = entry.outcomes.values()
    known = [outcome.regret for outcome in outcomes if outcome.regret is not None]
    over = f"{math.exp(sum(known) / len(known)):.3f} ({len(known)})" if known else "?"
    total = sum(outcome.total for outcome in outcomes) / len(outcomes)
    steps = sum(outcome.steps for outcome in outcomes)
    times = f"{math.exp(sum(apart) / tasks):.3f}" if math.isfinite(sum(apart)) else "?"
    cells = (entry.name, f"{len(outcomes)} of {tasks}", times, over, f"{total:.3f}", f"{steps}", f"{entry.trials}")
    return (*cells, f"{entry.evaluations}", f"{entry.seed}")


def _cell(outcome: Outcome | None) -> str:
    """Microseconds, and times the optimum where it is known."""
    if outcome is None:
        return ""
    if outcome.status != "OK":
        return outcome.status
    over = "" if outcome.regret is None else f" ({math.exp(outcome.regret):.3f})"
    return f"{outcome.seconds * 1e6:.2f} us{over}"


def page_with(page: str, built: str) -> str:
    """The page with what is between the marks replaced. ValueError where the marks are missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{built}\n\n{END}{after}"


def build(folder: Path = FOLDER, page: Path = PAGE, suite: Path = SUITE) -> tuple[str, Sheet]:
    """Text of the page and its first table, from files verified now; a page that cannot be built is refused before that."""
    old = page.read_text(encoding="utf-8")
    page_with(old, "")
    chosen = read_suite(suite)
    entries = read_entries(folder, chosen)
    return page_with(old, "\n".join(lines(entries, chosen))), sheet(entries, chosen)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status: 1 where the page is not what `--check` expects, 2 where a file is not true."""
    parser = Parser(prog="python -m experiments.leaderboard", description="Build docs/leaderboard.md.")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--suite", type=Path, default=SUITE)
    parser.add_argument("--frozen", metavar="VERSION", help=FROZEN)
    parser.add_argument("--check", action="store_true", help="write nothing; say whether the page is what would be built")
    args = parser.parse_args(arguments)
    return exit_code(lambda: _build(args))


def _build(args: argparse.Namespace) -> int:
    """Write the page, or compare it; 1 where it is another."""
    if args.frozen:
        if args.folder == FOLDER:
            suite_page.build(args.frozen, entries.FOLDER, suite_page.PAGE, args.check)
        else:
            print("\n".join(suite_page.beside(args.frozen, args.folder, entries.FOLDER)))
        return 0
    text, table_of_agents = build(args.folder, args.page, args.suite)
    if not args.check:
        write_text(args.page, text)
        table_of_agents.write_csv(args.folder / "leaderboard.csv")
        table_of_agents.show(Console())
    elif text != args.page.read_text(encoding="utf-8"):
        print(f"{args.page} is not what its replay files say: build it with python -m experiments.leaderboard", file=sys.stderr)
        return 1
    return 0
