"""One table of results: printed to fit the screen, written as Markdown for people and as CSV for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from experiments.common.results import write_text
from experiments.common.texts import table
from experiments.sheets.cells import Cell, Given, as_cell
from experiments.sheets.screen import show_cells


@dataclass(frozen=True)
class Sheet:
    """A title, columns, rows of cells and lines beneath.

    For the screen alone: `styles` are rich's, of the first rows; `words` are columns that stand left, whatever they look like.
    The first column names a row; columns are in the order of their weight: a narrow screen puts the last ones under their row.
    ValueError for a row that has not as many cells as there are columns.
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
        """A sheet from texts and cells."""
        return cls(title, tuple(head), tuple(tuple(map(as_cell, row)) for row in rows), tuple(notes), tuple(styles), words)

    def __post_init__(self) -> None:
        """See the class."""
        for row in self.rows:
            if len(row) != len(self.head):
                raise ValueError(f"row {row} has {len(row)} cells: table {self.title!r} has {len(self.head)} columns")

    def show(self, console: Console) -> None:
        """Print it; see `experiments.sheets.screen`."""
        show_cells(console, self.title, self.head, self.rows, self.notes, self.styles, self.words)

    def markdown(self) -> list[str]:
        """Lines of a Markdown table, without title and notes."""
        return table(self.head, [tuple(cell.text for cell in row) for row in self.rows])

    def csv(self) -> str:
        """Texts and unrounded numbers, times in seconds, shares not in percent; intervals are columns `NAME low`, `NAME high`."""
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
        """Write the CSV file."""
        write_text(path, self.csv())

    def write(self, path: Path) -> None:
        """Write `path`.md, with title and notes, and `path`.csv."""
        shown = [f"# {self.title}", "", *self.markdown(), *(f"\n{note}" for note in self.notes)]
        write_text(path.with_name(f"{path.name}.md"), "\n".join(shown) + "\n")
        self.write_csv(path.with_name(f"{path.name}.csv"))


def _values(cell: Cell, count: int) -> list[object]:
    """A cell's values in `count` columns of a CSV file; a text that begins like a formula of a spreadsheet is quoted."""
    if cell.numbers:
        return [*cell.numbers, *[""] * (count - len(cell.numbers))]
    text = "" if cell.text == "-" else cell.text
    return [f"'{text}" if text.startswith(("=", "@", "+", "-")) else text, *[""] * (count - 1)]
