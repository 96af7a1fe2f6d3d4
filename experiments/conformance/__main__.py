"""Compare compiled operators with torch: `python -m experiments.conformance`. Finished cases are kept and not repeated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import track

from agents.cli.parser import Parser
from agents.runs.files import write_text
from agents.runs.journal import Journal
from agents.runs.texts import table
from experiments.conformance.cases import FAR, OUTPUT, SPECIAL, STATUSES, Outcome, cases, counted, tried

PAGE = "conformance.md"
KINDS = {
    "plain": "as the database draws them",
    "special": f"float32 with {', '.join(map(str, SPECIAL))} in every third place",
    "integers": f"int64 and int32 with {', '.join(map(str, FAR))} in every third place",
}


def page(found: dict[str, list[Outcome]]) -> str:
    """Return the results as a Markdown page: counts by status, wrong cases, and refused operators."""
    lines = [
        "# torch's operator database", "",
        "Each operator is compiled with one trial and compared with torch on samples of its inputs (two of float32, one of "
        "int64, one of bool): `python -m experiments.conformance`. Random, complex and sparse operators and factorisations are "
        "left out. *Refused*: the compiler names what it does not support, a call names integers that float32 lacks for an "
        "operation without an integer form, or torch itself raises.", "",
        *table(("inputs", *STATUSES), [counted(KINDS[kind], outcomes) for kind, outcomes in found.items()]),
    ]  # fmt: skip
    for kind, outcomes in found.items():
        for status in ("wrong", "error"):
            listed = [f"- `{one.name}`: {one.said}" for one in outcomes if one.status == status]
            lines += ["", f"## {status.capitalize()}, {kind}", "", *listed] if listed else []
    lines += ["", "## Refused, plain", "", "| operator | cases | why |", "|---|---:|---|"]
    lines += [f"| {name} | {count} | {why} |" for name, count, why in _refused(found.get("plain", []))]
    return "\n".join(lines) + "\n"


def _refused(outcomes: Iterable[Outcome]) -> list[tuple[str, int, str]]:
    """Return (operator, number of refused cases, reason of the first) for each refused operator, sorted by operator."""
    by_name: dict[str, list[str]] = {}
    for one in outcomes:
        if one.status == "refused":
            by_name.setdefault(one.name.rsplit(" ", 2)[0], []).append(one.said.partition("; did you")[0].replace("|", "/")[:120])
    return [(name, len(said), said[0]) for name, said in sorted(by_name.items())]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status: 1 if a case is wrong or ends in an error of this project."""
    parser = Parser(prog="python -m experiments.conformance", description="Compare compiled functions with torch.")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    args = parser.parse_args(arguments)
    console, found = Console(), dict[str, list[Outcome]]()
    for kind in KINDS:
        with Journal(args.output / f"{kind}.jsonl") as journal:
            for case in track(list(cases(kind)), kind, console=console):
                if case.name not in journal.rows:
                    journal.add({"key": case.name, **asdict(tried(case))})
            found[kind] = [Outcome(row["name"], row["status"], row["said"]) for row in journal]
    write_text(args.output / PAGE, page(found))
    console.print(f"The table is in {args.output / PAGE}", soft_wrap=True)
    return int(any(one.status in ("wrong", "error") for outcomes in found.values() for one in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
