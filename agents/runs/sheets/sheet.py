"""A table of results: printed to fit the screen, written as Markdown for people and as CSV for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from agents.runs.files import write_text
from agents.runs.sheets.cells import Cell, Given, as_cell
from agents.runs.sheets.screen import show_cells
from agents.runs.texts import table


@dataclass(frozen=True)
class Sheet:
    """A table of results: title, columns, rows of cells, and notes below.

    Two fields affect only the screen: `styles` are rich's styles of the first rows, and `words` names columns that are always
    aligned to the left. The first column names a row. Columns are in the order of their importance: on a narrow screen the last
    columns move below the rows. ValueError for a row whose number of cells differs from the columns.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, title: str, head: Sequence[str], rows: Iterable[Sequence[Given]], notes: Iterable[str] = (),
        styles: Iterable[str] = (), words: tuple[str, ...] = (),
    ) -> Sheet:  # fmt: skip
        """Make a sheet from rows of texts and cells."""
        return cls(title, tuple(head), tuple(tuple(map(as_cell, row)) for row in rows), tuple(notes), tuple(styles), words)

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.head):
                raise ValueError(f"row {row} has {len(row)} cells: table {self.title!r} has {len(self.head)} columns")

    def show(self, console: Console) -> None:
        """Print the table, fitted to the console; see `agents.runs.sheets.screen`."""
        show_cells(console, self.title, self.head, self.rows, self.notes, self.styles, self.words)

    def markdown(self) -> list[str]:
        """Return the lines of a Markdown table, without title and notes."""
        return table(self.head, [tuple(cell.text for cell in row) for row in self.rows])

    def csv(self) -> str:
        """Return the table as CSV text with unrounded numbers: times in seconds, shares as fractions.

        A column with intervals is followed by the columns `NAME low` and `NAME high`.
        """
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.head)
        wide = [any(len(cell.numbers) == 3 for cell in column) for column in columns]
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        heads = ((name, f"{name} low", f"{name} high") if three else (name,) for name, three in zip(self.head, wide, strict=True))
        writer.writerow([name for group in heads for name in group])
        for row in self.rows:
            groups = (_values(cell, 3 if three else 1) for cell, three in zip(row, wide, strict=True))
            writer.writerow([value for group in groups for value in group])
        return file.getvalue()

    def write_csv(self, path: Path) -> None:
        """Write the table as a CSV file."""
        write_text(path, self.csv())

    def write(self, path: Path) -> None:
        """Write the table as `path`.md, with title and notes, and as `path`.csv."""
        shown = [f"# {self.title}", "", *self.markdown(), *(f"\n{note}" for note in self.notes)]
        write_text(path.with_name(f"{path.name}.md"), "\n".join(shown) + "\n")
        self.write_csv(path.with_name(f"{path.name}.csv"))


def _values(cell: Cell, count: int) -> list[object]:
    """Return a cell's values in `count` columns of a CSV file. A text that a spreadsheet would read as a formula is quoted."""
    if cell.numbers:
        return [*cell.numbers, *[""] * (count - len(cell.numbers))]
    text = "" if cell.text == "-" else cell.text
    return [f"'{text}" if text.startswith(("=", "@", "+", "-")) else text, *[""] * (count - 1)]
