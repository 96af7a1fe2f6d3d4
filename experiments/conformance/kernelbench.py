"""Try the modules of KernelBench (arXiv 2502.10517): `python -m experiments.conformance.kernelbench CLONE/KernelBench`.

Levels 1 to 3; each module runs with its own inputs, but smaller. Whole numbers outside of classes are halved until they are at
most `LIMITS[0]`, or the next limit if the module does not run with that. Batches have at most `BATCH` elements; if the module
runs with none of the limits, all limits are tried again with batches of at most the limit. Each module has its own process.
"""

from __future__ import annotations

import ast
import re
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from agents.cli.parser import Parser
from experiments.conformance.cases import OUTPUT, STATUSES, Case, Outcome, command, counted, paged, tried

LEVELS = ("level1", "level2", "level3")
LIMITS, BATCH = (64, 128, 256, 1024), 2
MARGIN = 1.0
"""A result that differs from torch's counts as right if it is at most this many times as far from float64 as torch's."""
ROWS, MODULE = OUTPUT / "kernelbench.jsonl", "experiments.conformance.kernelbench"


class _Smaller(ast.NodeTransformer):
    """Transformer of a module's syntax tree that makes whole numbers outside of classes smaller."""

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
    """Run a file of KernelBench with smaller sizes; return its module and inputs as a case. It raises any error of the file."""
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
    """Return the level and the file name of a module, as in `level1/NAME`."""
    return f"{file.parent.name}/{file.stem}"


def files(folder: Path) -> Iterator[Path]:
    """Yield the modules' files by level and number."""
    for level in LEVELS:
        yield from sorted((folder / level).glob("*.py"), key=lambda file: int(re.match(r"\d+", file.name)[0]))  # type: ignore[index]


def outcome(file: Path) -> Outcome:
    """Try the module of a file in this process, with the smallest sizes at which torch runs it, and return its outcome."""
    for limit, batch in [*((limit, BATCH) for limit in LIMITS), *((limit, limit) for limit in LIMITS)]:
        try:
            case = case_of(file, limit, batch)
        except Exception as error:  # any error of a module about unfit sizes
            said = f"by torch too: {type(error).__name__}: {error}"
            continue
        return tried(case, MARGIN)
    return Outcome(name_of(file), "refused", said)


def page(found: Sequence[Outcome]) -> str:
    """Return the results as a Markdown page: counts by level, and each module that is not right, with the reason."""
    rows = [counted(level, (one for one in found if one.name.startswith(level))) for level in LEVELS]
    lines = [
        "# KernelBench", "",
        "Levels 1 to 3 with smaller inputs, one trial, compared with torch. Numbers that differ from torch's are right where",
        "they are no farther from float64: `python -m experiments.conformance.kernelbench CLONE/KernelBench`.",
    ]  # fmt: skip
    return paged(lines, ("level", *STATUSES), rows, found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status: 1 if a module is wrong or ends in an error of this project."""
    parser = Parser(prog=f"python -m {MODULE}", description="Compare KernelBench's modules with torch.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path())

    def cases(args: Namespace) -> dict[str, str]:
        if not (given := list(files(args.folder))):
            parser.error(f"{args.folder} holds no {', '.join(LEVELS)} with modules: expected the folder KernelBench of a clone")
        return {name_of(file): str(file) for file in given}

    return command(parser, arguments, MODULE, ROWS, lambda one: outcome(Path(one)), cases, page)


if __name__ == "__main__":
    raise SystemExit(main())
