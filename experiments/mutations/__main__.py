"""Plant each mutation in a copy of the tree and find the test that catches it: `python -m experiments.mutations LABEL`.

LABEL names the state of the tree, such as `before`. Results are lines of results/mutations/LABEL.jsonl; a mutation with a final
result is not run again. results/mutations/mutations.md compares all labels. `--mode quick` runs the test files that a mutation
names, and the whole suite if these pass; `named` skips the whole suite, `whole` runs only that. A test has caught a mutation
if, in the same copy, it fails with the mutation and passes without.

Numba recompiles for every mutation of rules and model, which takes one to two minutes each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from agents.cli.parser import Parser
from agents.runs.files import write_text
from agents.runs.journal import Journal, read_rows
from experiments.mutations.copies import MODES, Copy, Outcome, Unsure
from experiments.mutations.faults import KINDS, MUTATIONS
from gensor_gym.registry import near

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "results" / "mutations"
PAGE = "mutations.md"


def outcomes(path: Path) -> dict[str, Outcome]:
    """Read a file of results; return the outcomes by name of the mutation."""
    return {row["mutation"]: Outcome(**{name: value for name, value in row.items() if name != "key"}) for row in read_rows(path)}


def page(folder: Path) -> str:
    """Return a Markdown table of mutations, with columns for every file of results in the folder, `before` first."""
    paths = sorted(folder.glob("*.jsonl"), key=lambda path: (path.stem != "before", path.stem))
    labels = {path.stem: outcomes(path) for path in paths}
    heads = " | ".join(f"{label}: caught by | s" for label in labels)
    lines = [
        "# Mutations", "",
        "Each fault is planted in a copy of the tree, by itself; `python -m experiments.mutations LABEL`. The test named is the "
        "first that fails, and passes without the fault; seconds are those until then, on one core, with what Numba compiles "
        "anew. *In mode `named` only the files of tests that a mutation names are run.*",
        "",
        f"| mutation | what is wrong then | {heads} |", f"|---|---|{'---|---:|' * len(labels)}",
    ]  # fmt: skip
    for kind in KINDS:
        lines.append(f"| **{kind}** | |{' | |' * len(labels)}")
        for mutation in (each for each in MUTATIONS if each.kind == kind):
            cells = [_cells(found.get(mutation.name)) for found in labels.values()]
            lines.append(f"| {mutation.name} | {mutation.fault} | {' | '.join(cells)} |")
    for label, found in labels.items():
        caught = sum(outcome.caught for outcome in found.values())
        modes, commits = (", ".join(sorted({getattr(one, name) for one in found.values()})) for name in ("mode", "commit"))
        lines += ["", f"{label}: {caught} of {len(found)} caught, in mode {modes}, at commit {commits}."]
    return "\n".join(lines) + "\n"


def _cells(outcome: Outcome | None) -> str:
    if outcome is None:
        return " | "
    return f"{f'`{outcome.test}`' if outcome.caught else f'**not caught** ({outcome.mode})'} | {outcome.seconds:.0f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the mutations that the command line names; return the exit status, 1 if a mutation was not caught."""
    parser = Parser(prog="python -m experiments.mutations", description="See tests catch planted faults.")
    parser.add_argument("label", help="name of the state of the tree, such as before")
    parser.add_argument("--mode", choices=MODES, default="quick")
    parser.add_argument("--jobs", type=int, default=2, help="processes that run tests")
    parser.add_argument("--only", nargs="*", help="names of mutations; default: all")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--scratch", type=Path, help="folder for the copy, kept with what Numba compiles; default: a new one")
    args = parser.parse_args(arguments)
    named = [mutation.name for mutation in MUTATIONS]
    if unknown := set(args.only or ()) - set(named):
        parser.error(f"no mutations {sorted(unknown)}; there are {named}{near(unknown, named)}")
    if args.jobs < 1:
        parser.error(f"--jobs {args.jobs}: expected 1 or more")
    kept, console = Journal(args.output / f"{args.label}.jsonl"), Console()
    known = {name for name, row in kept.rows.items() if row["caught"] or row["mode"] == "whole" or args.mode == "named"}
    asked = [next(mutation for mutation in MUTATIONS if mutation.name == name) for name in args.only or named]
    left = [mutation for mutation in asked if mutation.name not in known]
    if left:
        with Copy(ROOT, args.jobs, args.scratch) as copy:
            for mutation in left:
                try:
                    with console.status(mutation.name):
                        outcome = copy.tried(mutation, args.mode)
                except Unsure as error:
                    console.print(f"{error}; it is left out", soft_wrap=True)
                    continue
                kept.add({"key": mutation.name, **asdict(outcome)})
                console.print(outcome, soft_wrap=True)
    write_text(args.output / PAGE, page(args.output))
    console.print(f"The table is in {args.output / PAGE}", soft_wrap=True)
    found = outcomes(kept.path)
    return 0 if all(each.name in found and found[each.name].caught for each in asked) else 1


if __name__ == "__main__":
    raise SystemExit(main())
