"""Tables, made anew: those of the papers beside our numbers, and the report on model and measurement.

`python -m experiments.reproduce table=gensor_operators`, or another of TABLES; docs/tables.md lists them.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from importlib import import_module
from pathlib import Path

import hydra
from omegaconf import DictConfig
from rich import box
from rich.console import Console
from rich.table import Table as Shown

from experiments.common.arguments import CONF
from experiments.common.folders import make_folder
from experiments.common.results import write_text
from experiments.common.settings import code_digest
from experiments.tables.table import MAKERS, Table, text_of

TABLES = (
    "gensor_operators", "gensor_gemm", "gensor_ablation", "gensor_compile_time", "gensor_over_time",
    "gensor_changing_shapes", "gpu_published", "sim_to_real", "autotvm", "ansor",
)  # fmt: skip
"""Modules of `experiments.tables`."""


def reproduce(config: DictConfig) -> list[Table]:
    """Make the tables of a configuration (conf/reproduce.yaml) and write `<name>.json` and `<name>.md`.

    ValueError for an unknown name, or a folder that cannot be written.
    """
    name, folder = config.table, Path(config.output)
    if name not in (*TABLES, *MAKERS):
        raise ValueError(f"table {name!r}: expected one of {', '.join((*TABLES, *MAKERS))}")
    make_folder(folder)
    make = MAKERS[name] if name in MAKERS else import_module(f"experiments.tables.{name}").make
    tables = make(config, folder)
    value = {"code": code_digest(), "tables": [dataclasses.asdict(table) for table in tables]}
    write_text(folder / f"{name}.json", json.dumps(value, indent=1))
    text = "\n".join(table.markdown() for table in tables)
    write_text(folder / f"{name}.md", f"# {name}\n\nMade by the code `{code_digest()}`.\n\n{text}")
    return tables


def show(console: Console, table: Table) -> None:
    """Print a table with its notes."""
    shown = Shown(title=table.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for position, column in enumerate(table.columns):
        shown.add_column(column, justify="left" if position == 0 else "right")
    for row in table.rows:
        shown.add_row(*map(text_of, row))
    console.print(shown)
    console.print(f"  stamp: [bold]{table.stamp}[/] ({table.stamp.meaning})", highlight=False)
    for note in table.notes:
        console.print(f"  {note}", style="dim", highlight=False)


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="reproduce")
def main(config: DictConfig) -> None:
    """Command line."""
    console = Console()
    try:
        with console.status(f"making {config.table}"):
            tables = reproduce(config)
    except ValueError as error:
        sys.exit(str(error))
    for table in tables:
        show(console, table)
    console.print(f"Results are in {config.output}/{config.table}.md and .json", soft_wrap=True)
