"""Lines of a study's searches, each kept as soon as it is there, so that a command that was stopped goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from experiments.common.anytime import run_search
from experiments.common.pool import side_by_side
from experiments.common.results import write_text

Found = TypeVar("Found")


class Keyed(Protocol):
    """A search with a key that names it and all that its outcome depends on."""

    @property
    def key(self) -> str:
        """Sixteen digits."""


class Kept:
    """The lines of a file of searches, by key; a torn last line is dropped."""

    def __init__(self, path: Path) -> None:
        """Read what is there."""
        self.path = path
        self.rows: dict[str, dict[str, Any]] = {}
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            write_text(path, whole)
        for line in whole.splitlines():
            row = json.loads(line)
            self.rows[row["key"]] = row

    def add(self, row: dict[str, Any]) -> None:
        """Append a line, which the system holds when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            left = memoryview((json.dumps(row) + "\n").encode())
            while left:
                left = left[os.write(descriptor, left) :]
        finally:
            os.close(descriptor)
        self.rows[row["key"]] = row


def run_missing(
    wanted: Sequence[Keyed], kept: Kept, processes: int, console: Console,
    work: Callable[[Any], dict[str, Any]] = run_search,
) -> list[dict[str, Any]]:  # fmt: skip
    """The lines of all searches, in their order; those that are not there are made by `work`, side by side."""
    keys = [search.key for search in wanted]
    left = [search for search, key in zip(wanted, keys, strict=True) if key not in kept.rows]
    if len(left) < len(wanted):
        console.print(f"{len(wanted) - len(left)} of {len(wanted)} searches were done before.")
    for row in with_bar(console, "searches", side_by_side(work, left, processes), len(left)):
        kept.add(row)
    return [kept.rows[key] for key in keys]


def with_bar(console: Console, name: str, found: Iterable[Found], total: int) -> Iterator[Found]:
    """What is found, as it comes, with a bar of how many there are of the total."""
    columns = (TextColumn(name), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        for one in found:
            yield one
            progress.advance(task)
