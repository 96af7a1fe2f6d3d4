"""Fit a table to a screen without cutting or breaking words and numbers.

A screen that is too narrow is handled in this order: headings take several lines, a long name gets a line of its own, intervals
are shown only in the files, and long texts and then the last columns move below their row as `name: value`. A pipe has no width,
so that every row is one line, unless $COLUMNS gives a width.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from agents.runs.sheets.cells import Cell
from agents.runs.sheets.columns import Column, columns

GAP = 2
NAME = 24
"""Minimum width of the column of names, in characters, while other columns can still move below the rows."""
LONG = 18
"""Number of characters above which texts move below the row before any number does."""
INDENT = 4
SHORTENED = "Intervals: on a wider screen, and in the files."

Line = tuple[str, str]
"""A printed line as (text, name of rich's style)."""


@dataclass(frozen=True)
class Layout:
    """Layout of a table on a screen.

    `beside` are the columns next to each other with their `widths`, and `under` those moved below the rows. With `short`, cells
    use their short texts.
    """

    beside: tuple[Column, ...]
    widths: tuple[int, ...]
    under: tuple[Column, ...] = ()
    short: bool = False


def show_cells(
    console: Console, title: str, head: Sequence[str], rows: Sequence[Sequence[Cell]], notes: Sequence[str],
    styles: Sequence[str], left: Sequence[str],
) -> None:  # fmt: skip
    """Print a table with its title and notes, fitted to the console."""
    width = width_of(console)
    chosen = layout(head, rows, left, width)
    notes = [*notes, SHORTENED] if chosen.short else notes
    lines: Iterator[Line] = chain(
        ((line, "bold") for line in words(title, width)),
        _headings(chosen),
        *(_row(chosen, number, style, width) for number, style in zip(range(len(rows)), chain(styles, repeat("")), strict=False)),
        *([(line, "dim") for line in words(note, width, 2)] for note in notes),
        [("", "")],
    )
    for text, style in lines:
        console.print(Text(text.rstrip(), style), soft_wrap=True)


def width_of(console: Console) -> int | None:
    """Return the console's characters per line; None for a console without a width."""
    return console.width if console.is_terminal or "COLUMNS" in os.environ else None


def layout(head: Sequence[str], rows: Sequence[Sequence[Cell]], left: Sequence[str], width: int | None) -> Layout:
    """Choose the first layout of a table that fits into `width`.

    In the narrowest layout only the names are columns, and all other values are below the rows.
    """
    full = columns(head, rows, left, short=False)
    natural = tuple(column.natural for column in full)
    if width is None or _total(natural) <= width:
        return Layout(tuple(full), natural)
    shorter = [columns(head, rows, left, short=True)] if any(cell.short is not None for row in rows for cell in row) else []
    for found in (full, *shorter):
        for least in (full[0].least, NAME):
            if widths := _squeezed(found, least, width):
                return Layout(tuple(found), widths, short=found is not full)
    return _moved((shorter or [full])[0], bool(shorter), width)


def _moved(found: list[Column], short: bool, width: int) -> Layout:
    """Move long texts, then the last columns, below their rows until the remaining columns fit; return that layout."""
    texts = sorted((column for column in found[1:] if column.left and column.cells > LONG), key=lambda column: -column.cells)
    order = [*texts, *(column for column in reversed(found[1:]) if column not in texts)]
    for count in range(1, len(order) + 1):
        gone = order[:count]
        beside = [column for column in found if column not in gone]
        least = NAME if count < len(order) else 1
        if widths := _squeezed(beside, least, width):
            return Layout(tuple(beside), widths, tuple(column for column in found if column in gone), short)
    raise AssertionError("one place is enough for names, which may stand on lines of their own")


def _squeezed(beside: list[Column], least: int, width: int) -> tuple[int, ...]:
    """Return widths of columns whose headings take several lines; empty if the columns do not fit.

    The column of names has at least `least` characters.
    """
    widths = [column.least for column in beside]
    widths[0] = min(widths[0], least)
    left = width - _total(widths)
    if left < 0:
        return ()
    for place, column in enumerate(beside):
        more = min(left, column.natural - widths[place])
        widths[place] += more
        left -= more
    return tuple(widths)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _headings(chosen: Layout) -> Iterator[Line]:
    broken = [words(column.name, width) for column, width in zip(chosen.beside, chosen.widths, strict=True)]
    most = max(map(len, broken))
    for number in range(most):
        yield _joined(chosen, [([""] * (most - len(lines)) + lines)[number] for lines in broken]), "bold"
    yield "─" * _total(chosen.widths), "dim"


def _joined(chosen: Layout, texts: Sequence[str]) -> str:
    placed = zip(chosen.beside, texts, chosen.widths, strict=True)
    return (" " * GAP).join(column.placed(text, width) for column, text, width in placed)


def _row(chosen: Layout, number: int, style: str, width: int | None) -> Iterator[Line]:
    """Yield the lines of a row: a long name on its own line, the cells, and the columns moved below."""
    name, *others = (column.texts[number] for column in chosen.beside)
    if cell_len(name) > chosen.widths[0]:
        yield from ((line, style) for line in words(name, width))
        name = ""
    if name or others:
        yield _joined(chosen, [name, *others]), style
    said = [(column.name, column.texts[number].strip()) for column in chosen.under]
    items = [f"{name}: {text}".replace(" ", "\xa0") for name, text in said if text not in ("", "-")]
    for line in words(" · ".join(items), width and width - INDENT):  # an item is broken only if it is longer than a line
        yield from ((part, "dim") for part in words(line.replace("\xa0", " "), width, INDENT))


def words(text: str, width: int | None, indent: int = 0) -> list[str]:
    """Wrap a text into lines of whole words, at most `width` characters each; None does not wrap.

    A word longer than `width` gets its own line.
    """
    step = " " * indent
    return textwrap.wrap(
        text, width or indent + len(text) + 1, initial_indent=step, subsequent_indent=step, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
