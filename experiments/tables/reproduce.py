"""Make tables: those of the papers next to our numbers, and the report on model and measurement.

Run it by `python -m experiments.reproduce table=gensor_operators`; docs/tables.md lists the tables. A table is a module of this
folder or of a package in it, with a function `make`: (configuration, folder for figures) -> tables. No registration is needed.
"""

from __future__ import annotations

import dataclasses
import json
from importlib import import_module
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console

from agents.cli.command import command
from agents.runs.files import make_folder, write_text
from agents.runs.settings import code_digest
from experiments.tables.gensor import marks
from experiments.tables.table import MAKERS, Table, modules
from gensor_gym.registry import check_known

MODELS = "model_"
"""Prefix of the names of folders for searches with a machine's model (`gensor.searches`)."""


def known() -> list[str]:
    """Sorted names of all tables."""
    return sorted(modules())


def reproduce(config: DictConfig) -> list[Table]:
    """Make the tables of a configuration (conf/reproduce.yaml), write `<name>.json` and `<name>.md`, and return the tables.

    ValueError for an unknown name, or a folder that cannot be written.
    """
    name, folder = config.table, Path(config.output)
    check_known("table", name, (*known(), *MAKERS))
    make_folder(folder)
    make = MAKERS[name] if name in MAKERS else import_module(modules()[name]).make
    tables = make(config, folder)
    models = sorted(path.name.removeprefix(MODELS) for path in folder.glob(f"{MODELS}*"))
    value = {"code": code_digest(), "tables": [dataclasses.asdict(table) for table in tables]}
    write_text(folder / f"{name}.json", json.dumps(value, indent=1))
    text = "\n".join(table.markdown() for table in tables)
    said = " ".join([f"Made by the code `{code_digest()}`.", *marks.lines(models)])
    write_text(folder / f"{name}.md", f"# {name}\n\n{said}\n\n{text}")
    for number, table in enumerate(tables, 1):
        table.sheet().write_csv(folder / (f"{name}.csv" if len(tables) == 1 else f"{name}_{number}.csv"))
    return tables


def show(console: Console, table: Table) -> None:
    """Print a table with its stamp and notes."""
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
