"""Table of a paper as it is reproduced: our numbers next to the published numbers, with the differences in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agents.cli.found import functions_of
from agents.runs.sheets.cells import Cell as Shown
from agents.runs.sheets.sheet import Sheet
from experiments.studies.study import Stamp
from gensor_gym.registry import Made, registers

Cell = str | float | None


MAKERS: dict[str, Callable[..., list[Table]]] = {}
"""Name -> function that makes tables from (configuration of `reproduce`, folder), for tables that are registered."""


def modules() -> dict[str, str]:
    """Return, by a table's name, the path of its function in this package: `make` of a module, or `make_NAME`."""
    return functions_of("make", "experiments.tables")


def register_table(name: str) -> Callable[[Made], Made]:
    """Return a decorator that registers a function that makes tables; raise ValueError if the name is taken."""
    if name in modules():
        raise ValueError(f"table {name!r}: experiments.tables has one of that name; choose another")
    return registers("table", MAKERS, name)


@dataclass(frozen=True)
class Table:
    """A table of text and numbers, with the origin of our numbers (`stamp`).

    `notes` have the conditions of our numbers and of the published numbers, and their differences. `figures` are PNG files next
    to the page. Raise ValueError for a row whose number of cells differs from the columns.
    """

    title: str
    stamp: Stamp
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the number of cells of every row; raise ValueError if it is not that of the columns."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"row {row} has {len(row)} cells: table {self.title!r} has {len(self.columns)} columns")

    def markdown(self) -> str:
        """Return the table as Markdown text, a section of a page."""
        shown = [line for name in self.figures for line in ("", f"![{self.title}]({name})")]
        notes = (f"- {note}" for note in self.notes)
        stamp = f"Stamp: **{self.stamp}** ({self.stamp.meaning})."
        lines = [f"## {self.title}", "", stamp, "", *self.sheet().markdown(), *shown, "", *notes]
        return "\n".join(lines) + "\n"

    def sheet(self, *more: str) -> Sheet:
        """Return the table for the screen and for files; `more` are lines before the notes."""
        rows = [[Shown(text_of(cell), (cell,) if isinstance(cell, float | int) else ()) for cell in row] for row in self.rows]
        return Sheet.of(self.title, self.columns, rows, (*more, *self.notes))


def text_of(value: Cell) -> str:
    """Format a cell: numbers have three digits, None is a dash."""
    return "-" if value is None else value if isinstance(value, str) else f"{value:.3g}"
