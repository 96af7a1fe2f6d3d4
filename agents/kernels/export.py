"""Export kernels: `gensor export FILE folder=FOLDER [trials=N]` writes one library for a file of operators.

The file has one operator per line, with comments after `#`. Each kernel is the best program that `gensor optimize` or
`optimize(.., reuse=True)` has found on this machine. With `trials`, operators without a known program are searched first.
Operators that differ only in sizes also share one function that takes the sizes as arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, ListConfig
from rich.console import Console

from agents.cli.command import command
from agents.kernels.search import Search
from agents.optimizer import Result, export_all
from agents.runs.files import make_folder
from agents.runs.sheets.cells import seconds
from agents.runs.sheets.sheet import Sheet
from gensor_gym import operators
from gensor_gym.codegen.export import check_folder
from gensor_gym.foreign import read_lines
from gensor_gym.measure.records.tuned import fastest
from gensor_gym.operators.types import Operator


def operators_of(given: str | ListConfig | None) -> list[Operator]:
    """Return the distinct operators of a file, a list, a table's name or a text. ValueError names the faulty line."""
    if given is None:
        raise ValueError("no operators: name a file of them, as in gensor export FILE folder=FOLDER")
    if not isinstance(given, str) or not Path(given).is_file():
        if isinstance(given, str) and "(" not in given and (Path(given).suffix or Path(given).exists()):
            raise ValueError(f"{given} is a folder: expected a file" if Path(given).is_dir() else f"no file {given}")
        return list(dict.fromkeys(operators.resolve(given if isinstance(given, str) else list(given))))
    found: dict[Operator, None] = {}
    for number, line in read_lines(given):
        if text := line.partition("#")[0].strip():
            try:
                found |= dict.fromkeys(operators.resolve(text))
            except ValueError as error:
                raise ValueError(f"{given}, line {number}: {error}") from error
    if not found:
        raise ValueError(f"{given} has no operators: expected one on each line, such as gemm(m=512, n=384, k=1000)+bias")
    return list(found)


def check_known(ops: Sequence[Operator], search: Search) -> None:
    """Check that every operator has a stored program, unless `trials` allows a search. ValueError names those without."""
    if search.trials is None and search.backend.stored:
        missing = [op for op in ops if fastest(op, search.hardware, search.backend, search.store) is None]
    else:
        missing = list(ops) if search.trials is None else []
    if missing:
        names = ", ".join(map(str, missing[:3])) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise ValueError(f"no program was found before for {names} in {search.store}: trials=N searches for them")


def show(results: Sequence[Result], console: Console) -> None:
    """Print a table of kernels, one row each: operator, time, and number of trials."""
    rows = [
        (str(one.task.operator), seconds(one.seconds), f"{len(one.trace)} trials" if one.trace else "before")
        for one in results
    ]
    Sheet.of("kernels", ("operator", "time", "found"), rows).show(console)


@command("export")
def main(config: DictConfig, console: Console) -> None:
    """Find a kernel for every operator, searching if necessary, and write the library's folder."""
    if config.folder is None:
        raise ValueError("no folder: name a new one, as in gensor export FILE folder=FOLDER")
    folder = check_folder(config.folder)
    ops, search = operators_of(config.operators), Search.of(config)
    check_known(ops, search)
    make_folder(folder)
    results = [search.run(op, True, console) for op in ops]
    made = export_all(results, config.folder, config.library)
    show(results, console)
    binaries = ", ".join(path.name for path in made.binaries)
    console.print(f"{made.header} declares what {binaries} has", soft_wrap=True, highlight=False, markup=False)
