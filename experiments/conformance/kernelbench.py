"""Try the modules of KernelBench (arXiv 2502.10517): `python -m experiments.conformance.kernelbench CLONE/KernelBench`.

Levels 1 to 3, each module with its own inputs but smaller: numbers outside of classes are halved until they are at most
`LIMITS[0]`, or the next limit where the module does not run so, and batches are of `BATCH`, or of any size where none of these
does. A module has a process of its own.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from experiments.commands.parser import Parser
from experiments.common.journal import Journal
from experiments.common.results import write_text
from experiments.conformance.cases import STATUSES, Case, Outcome, tried

LEVELS = ("level1", "level2", "level3")
LIMITS, BATCH = (64, 128, 256, 1024), 2
SECONDS = 300.0
"""Of a module: export, compiling, a call."""
OUTPUT = Path(__file__).resolve().parents[2] / "results" / "conformance"
ROWS, PAGE = OUTPUT / "kernelbench.jsonl", OUTPUT / "kernelbench.md"


class _Smaller(ast.NodeTransformer):
    """Whole numbers outside of classes made smaller."""

    def __init__(self, limit: int, batch: int) -> None:
        self.limit, self.batch = limit, batch

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:  # noqa: N802
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:  # noqa: N802
        batch = any("batch" in target.id for target in node.targets if isinstance(target, ast.Name))
        if batch and isinstance(node.value, ast.Constant) and type(node.value.value) is int:
            node.value = ast.Constant(min(node.value.value, self.batch))
            return node
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:  # noqa: N802
        value = node.value
        while type(value) is int and value > self.limit:
            value //= 2
        return ast.copy_location(ast.Constant(value), node)


def case_of(file: Path, limit: int, batch: int = BATCH) -> Case:
    """A module of a file with its inputs; whatever the file raises."""
    import torch

    tree = ast.fix_missing_locations(_Smaller(limit, batch).visit(ast.parse(file.read_text(encoding="utf-8"))))
    names: dict[str, Any] = {"__name__": file.stem}
    exec(compile(tree, str(file), "exec"), names)  # noqa: S102
    torch.manual_seed(0)
    module = names["Model"](*names["get_init_inputs"]()).eval()
    given = names["get_inputs"]()
    inputs = tuple(torch.tensor(one) if isinstance(one, int | float) else one for one in given)
    with torch.no_grad():
        module(*inputs)
    return Case(name_of(file), module, inputs)


def name_of(file: Path) -> str:
    """Level and number with the module's name."""
    return f"{file.parent.name}/{file.stem}"


def files(folder: Path) -> Iterator[Path]:
    """By level and number."""
    for level in LEVELS:
        yield from sorted((folder / level).glob("*.py"), key=lambda file: int(re.match(r"\d+", file.name)[0]))  # type: ignore[index]


def outcome(file: Path) -> Outcome:
    """Of a module in this process."""
    for limit, batch in [*((limit, BATCH) for limit in LIMITS), *((limit, limit) for limit in LIMITS)]:
        try:
            case = case_of(file, limit, batch)
        except Exception as error:  # whatever a module says of sizes that do not fit it
            said = f"by torch too: {type(error).__name__}: {error}"
            continue
        return tried(case)
    return Outcome(name_of(file), "refused", said)


def apart(file: Path) -> Outcome:
    """Of a module in a process of its own."""
    command = [sys.executable, "-m", "experiments.conformance.kernelbench", "--one", str(file)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Outcome(name_of(file), "error", f"not done after {SECONDS:g} s")
    if done.returncode:
        return Outcome(name_of(file), "error", done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "ended")
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def page(found: Sequence[Outcome]) -> str:
    """A Markdown page: counts by level, and each module that is not right with the reason."""
    lines = [
        "# KernelBench", "",
        "Levels 1 to 3 with smaller inputs, one trial, compared with torch:",
        "`python -m experiments.conformance.kernelbench CLONE/KernelBench`.",
        "", f"| level | {' | '.join(STATUSES)} |", "|---|" + "---:|" * len(STATUSES),
    ]  # fmt: skip
    for level in LEVELS:
        counts = Counter(one.status for one in found if one.name.startswith(level))
        lines.append(f"| {level} | {' | '.join(str(counts[status]) for status in STATUSES)} |")
    lines += ["", "## Not right", "", "| module | | |", "|---|---|---|"]
    said = {one.name: one.said.replace("|", "/").replace("\n", " ")[:200] for one in found}
    lines += [f"| {one.name} | {one.status} | {said[one.name]} |" for one in found if one.status != "right"]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status: 1 where a module is wrong or ends in an error of ours."""
    parser = Parser(prog="python -m experiments.conformance.kernelbench", description="Compare KernelBench's modules with torch.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--one", action="store_true", help="a single file, whose outcome is printed")
    parser.add_argument("--rows", type=Path, default=ROWS)
    args = parser.parse_args(arguments)
    if args.one:
        print(json.dumps(asdict(outcome(args.folder))))
        return 0
    console = Console()
    if not (given := list(files(args.folder))):
        parser.error(f"{args.folder} holds no {', '.join(LEVELS)} with modules: expected the folder KernelBench of a clone")
    with Journal(args.rows) as journal:
        for file in track(given, "modules", console=console):
            if name_of(file) not in journal.rows:
                journal.add({"key": name_of(file), **asdict(apart(file))})
        found = [Outcome(row["name"], row["status"], row["said"]) for row in journal]
    write_text(args.rows.with_suffix(".md"), page(found))
    console.print(f"The table is in {args.rows.with_suffix('.md')}", soft_wrap=True)
    return int(any(one.status in ("wrong", "error") for one in found))


if __name__ == "__main__":
    raise SystemExit(main())
