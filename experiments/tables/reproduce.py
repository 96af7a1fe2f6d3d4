"""Make tables: the papers' numbers next to our numbers, and the report on model and measurement.

Run it by `python -m experiments.reproduce table=gensor_operators`; docs/tables.md lists the tables. A table is a module of this
folder or of a package in it, with a function `make`, or a function `make_NAME`: (configuration, folder for figures) -> tables. No
registration is needed.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console

from agents.cli.command import command
from agents.cli.found import loaded
from agents.runs.files import make_folder, write_text
from agents.runs.settings import code_digest
from experiments.tables.table import MAKERS, Table, modules
from gensor_gym import operators
from gensor_gym.fingerprint import common, fingerprints
from gensor_gym.registry import check_known

# Mark a page with the fingerprints of the machine models it was made with, so that a test can compare them with the tree's.

MARKED = ("gemm(m=1024, n=1024, k=1024)", "gemv(m=4096, k=4096)", "conv2d(n=16, c=64, h=56, w=56, k=64, r=3, s=3, padding=1)")
"""Operators, in space `extended`, over which a machine's fingerprint on a page is computed."""
OLDER = "Made under an older model"
"""Beginning of the note on a page that should be made again."""
_LINE = re.compile(r"Model of `(\w+)`: fingerprint `([0-9a-f]+)`")


def mark(hardware: str) -> str:
    """Return the fingerprint of a machine's rules and model on the operators `MARKED`, sixteen hexadecimal digits."""
    return common(fingerprints([operators.parse(text) for text in MARKED], hardware, "extended").values())


def lines(hardware: Iterable[str]) -> list[str]:
    """Return a line for each machine that states the fingerprint of its model, for a page made with these models."""
    return [f"Model of `{name}`: fingerprint `{mark(name)}`." for name in hardware]


def marked(page: str) -> Iterator[tuple[str, str]]:
    """Yield (machine, fingerprint) of every such line that a page contains."""
    yield from _LINE.findall(page)


MODELS = "model_"
"""Prefix of the names of folders with searches on a machine's model (`gensor.searches`)."""


def known() -> list[str]:
    """Return the sorted names of all tables."""
    return sorted(modules())


def reproduce(config: DictConfig) -> list[Table]:
    """Make the tables that a configuration (conf/reproduce.yaml) names, write them to files, and return them.

    Files are `<name>.json`, `<name>.md` and CSV. Raise ValueError for an unknown name, or a folder that cannot be written.
    """
    name, folder = config.table, Path(config.output)
    check_known("table", name, (*known(), *MAKERS))
    make_folder(folder)
    make = MAKERS[name] if name in MAKERS else loaded(modules()[name])
    tables = make(config, folder)
    models = sorted(path.name.removeprefix(MODELS) for path in folder.glob(f"{MODELS}*"))
    value = {"code": code_digest(), "tables": [dataclasses.asdict(table) for table in tables]}
    write_text(folder / f"{name}.json", json.dumps(value, indent=1))
    text = "\n".join(table.markdown() for table in tables)
    said = " ".join([f"Made by the code `{code_digest()}`.", *lines(models)])
    write_text(folder / f"{name}.md", f"# {name}\n\n{said}\n\n{text}")
    for number, table in enumerate(tables, 1):
        table.sheet().write_csv(folder / (f"{name}.csv" if len(tables) == 1 else f"{name}_{number}.csv"))
    return tables


def show(console: Console, table: Table) -> None:
    """Print a table with its notes and the origin of its numbers."""
    table.sheet(f"stamp: {table.stamp} ({table.stamp.meaning})").show(console)


@command("reproduce")
def main(config: DictConfig, console: Console) -> None:
    """Make and print the tables that the command line names."""
    if config.table is None:
        raise ValueError(f"expected table=NAME, one of {', '.join((*known(), *MAKERS))}")
    if not console.is_terminal:
        console.print(f"making {config.table} in {config.output}", soft_wrap=True, markup=False)
    with console.status(f"making {config.table}"):
        tables = reproduce(config)
    for table in tables:
        show(console, table)
    console.print(f"Results are in {config.output}/{config.table}.md and .json", soft_wrap=True, markup=False)
