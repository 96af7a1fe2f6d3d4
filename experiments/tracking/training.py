"""A training's curves while they grow, for W&B and TensorBoard: read from the files that the training writes.

Nothing of it happens in the training's thread, so that neither its numbers nor its end depend on it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from experiments.common.journal import read_rows

EVERY = 2.0
"""Seconds between two looks."""


class Board(Protocol):
    """Something that shows rows with `steps`."""

    def log(self, rows: list[dict[str, Any]]) -> None:
        """Show them."""


class _Followed:
    """Rows of files that grow, each once, in the order of their steps."""

    def __init__(self, files: list[Path], after: float) -> None:
        """Rows up to step `after` were seen before."""
        self._seen = dict.fromkeys(files, after)

    def fresh(self) -> list[dict[str, Any]]:
        """New rows."""
        found = []
        for path, last in self._seen.items():
            rows = [row for row in read_rows(path) if isinstance(row.get("steps"), int) and row["steps"] > last]
            self._seen[path] = max([last, *(row["steps"] for row in rows)])
            found += rows
        return sorted(found, key=lambda row: row["steps"])


@contextmanager
def followed(files: list[Path], boards: list[tuple[Board, float]], every: float = EVERY) -> Iterator[None]:
    """Inside, boards receive new rows of the files; at the end, all of them."""
    pairs = [(board, _Followed(files, after)) for board, after in boards]
    over = threading.Event()

    def look() -> None:
        for board, rows in pairs:
            if fresh := rows.fresh():
                board.log(fresh)

    def follow() -> None:
        while not over.wait(every):
            look()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        look()
