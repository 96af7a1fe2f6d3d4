"""What a reproduced table is: our numbers beside the published ones, and what differs between them in words."""

from __future__ import annotations

from dataclasses import dataclass

Cell = str | float | None


@dataclass(frozen=True)
class Table:
    """Columns and rows of text or numbers; `notes` say what is predicted, measured, published, and where from."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...]

    def markdown(self) -> str:
        """The table as a section of a page."""
        head = ["| " + " | ".join(self.columns) + " |", "|---|" + "---:|" * (len(self.columns) - 1)]
        body = ["| " + " | ".join(map(text_of, row)) + " |" for row in self.rows]
        return "\n".join([f"## {self.title}", "", *head, *body, "", *(f"- {note}" for note in self.notes)]) + "\n"


def text_of(value: Cell) -> str:
    """A cell as text: numbers with three digits."""
    return "-" if value is None else value if isinstance(value, str) else f"{value:.3g}"
