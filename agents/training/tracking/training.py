"""Follow a training's curves for W&B and TensorBoard while it runs, by reading the files that it writes.

A separate thread reads the files, so that neither the numbers nor the end of the training depend on it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from agents.runs.journal import read_rows

EVERY = 2.0
"""Number of seconds between two readings of the files."""


class Board(Protocol):
    """Interface of a display of curves, which takes rows with an entry `steps`."""

    def log(self, rows: list[dict[str, Any]]) -> None:
        """Show rows of a learning curve."""


@contextmanager
def followed(files: list[Path], boards: list[tuple[Board, float]], every: float = EVERY) -> Iterator[None]:
    """Send new rows of growing files to displays during the `with` block, and the remaining rows at its end.

    Each display (board) comes with a number of steps. It gets all later rows, each once, in the order of `steps`.
    """
    pairs = [(board, dict.fromkeys(files, after)) for board, after in boards]
    over = threading.Event()

    def look() -> None:
        for board, seen in pairs:
            if fresh := _fresh(seen):
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


def _fresh(seen: dict[Path, float]) -> list[dict[str, Any]]:
    """Read the new rows of growing files: those after the number of steps in `seen`, which is then updated."""
    found = []
    for path, last in seen.items():
        rows = [row for row in read_rows(path) if isinstance(row.get("steps"), int) and row["steps"] > last]
        seen[path] = max([last, *(row["steps"] for row in rows)])
        found += rows
    return sorted(found, key=lambda row: row["steps"])
