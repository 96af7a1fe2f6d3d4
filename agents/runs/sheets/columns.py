"""Columns of a table on a screen: aligned texts and their widths."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.cells import cell_len

from agents.runs.sheets.cells import Cell

_NUMBER = re.compile(r"([<>~+\-]*\d[\d,]*)((?:\.\d+)?.*)")
"""Pattern of a number in a cell: its integer part, and its fraction with the unit."""
_BRACKETS = re.compile(r"[\[(][^])]*[])]")
"""Pattern of a bracketed text in a cell: an interval, or an explanation of a number."""


@dataclass(frozen=True)
class Column:
    """A column of a table on a screen: a heading over texts of one line each.

    With `left` the texts are aligned to the left as words, otherwise to the right as numbers.
    """

    name: str
    texts: tuple[str, ...]
    left: bool

    @cached_property
    def cells(self) -> int:
        """Width of the widest text in the column, in characters."""
        return max(map(cell_len, self.texts), default=0)

    @property
    def natural(self) -> int:
        """Width of the column if its heading is on one line."""
        return max(cell_len(self.name), self.cells)

    @property
    def least(self) -> int:
        """Width of the column if each word of its heading is on its own line."""
        return max(*map(cell_len, self.name.split()), self.cells, 1, 0)

    def placed(self, text: str, width: int) -> str:
        """Pad a text, or a part of the heading, to `width` on the column's side."""
        space = " " * (width - cell_len(text))
        return text + space if self.left else space + text


def columns(head: Sequence[str], rows: Sequence[Sequence[Cell]], left: Sequence[str], short: bool) -> list[Column]:
    """Make the columns of a table from its headings and rows of cells.

    The first column and those named in `left` are words, as are columns that are mostly not numbers. `short` selects the cells'
    short texts.
    """
    lines = [[" ".join((cell.narrow if short else cell.text).split()) for cell in row] for row in rows]
    found = []
    for place, name in enumerate(head):
        texts = [line[place] for line in lines]
        words = place == 0 or name in left or not _numeric(texts)
        found.append(Column(name, tuple(texts if words else _aligned(texts)), words))
    return found


def _numeric(texts: Sequence[str]) -> bool:
    """Return whether at least half of the non-empty texts are numbers. An empty column counts as numeric."""
    said = [text for text in texts if text not in ("", "-")]
    return 2 * sum(_NUMBER.match(text) is not None and ", " not in _BRACKETS.sub("", text) for text in said) >= len(said)


def _aligned(texts: Sequence[str]) -> list[str]:
    found = [_NUMBER.fullmatch(text) for text in texts]
    before = max((len(match[1]) for match in found if match), default=0)
    after = max((cell_len(match[2]) for match in found if match), default=0)
    return [
        match[1].rjust(before) + match[2] + " " * (after - cell_len(match[2])) if match else text
        for match, text in zip(found, texts, strict=True)
    ]
