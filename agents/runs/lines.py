"""Run the searches of a study. Each result is written to a journal when the search ends, so that a stopped command resumes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from agents.runs.anytime import run_search
from agents.runs.journal import Journal
from agents.runs.pool import side_by_side

Found = TypeVar("Found")


class Keyed(Protocol):
    """Interface of a search whose key identifies it and everything that its outcome depends on."""

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits that identify the search."""


def run_missing(
    wanted: Sequence[Keyed], kept: Journal, processes: int, console: Console,
    work: Callable[[Any], dict[str, Any]] = run_search,
) -> list[dict[str, Any]]:  # fmt: skip
    """Run those searches of `wanted` that the journal `kept` lacks, in parallel; return the rows of all searches in their order.

    `work` runs one search and returns its row.
    """
    keys = [search.key for search in wanted]
    left = [search for search, key in zip(wanted, keys, strict=True) if key not in kept.rows]
    if len(left) < len(wanted):
        console.print(f"{len(wanted) - len(left)} of {len(wanted)} searches were done before.")
    for row in with_bar(console, "searches", side_by_side(work, left, processes), len(left)):
        kept.add(row)
    return [kept.rows[key] for key in keys]


def with_bar(console: Console, name: str, found: Iterable[Found], total: int) -> Iterator[Found]:
    """Yield the results `found` and show a progress bar."""
    columns = (TextColumn(name), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        for one in found:
            yield one
            progress.advance(task)
