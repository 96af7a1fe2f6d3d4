"""Show the progress of the search for a network's kernels: a bar on a terminal, or lines elsewhere on request."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Literal

from agents.pieces import OnTask

SECONDS = 2.0
"""Smallest number of seconds between two lines of progress."""


@contextmanager
def shown(on_task: OnTask | Literal["bar"] | None) -> Iterator[OnTask]:
    """Yield the function that the searches of a network call when they begin and continue.

    It is the caller's `on_task`, or else a function that updates a bar on stderr. Without a terminal that function does nothing;
    if the caller asks for a "bar", it prints lines. ValueError for another text.
    """
    if callable(on_task):
        yield on_task
    elif on_task not in (None, "bar"):
        raise ValueError(f"on_task={on_task!r}: expected a function of (pieces done, pieces, computation), or 'bar'")
    elif on_task and not sys.stderr.isatty():
        yield _lines()
    elif sys.stderr.isatty() and find_spec("rich") is not None:
        with _bar() as moved:
            yield moved
    else:
        yield lambda number, count, computation: None


def _lines() -> OnTask:
    begin = said = time.monotonic()

    def tell(number: int, count: int, computation: str) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= SECONDS and number:
            said, left = now, (now - begin) / number * (count - number)
            print(f"{number} of {count} pieces, about {left:.0f} s left: {computation}", file=sys.stderr, flush=True)

    return tell


@contextmanager
def _bar() -> Iterator[OnTask]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    times = TimeElapsedColumn(), TextColumn("and"), TimeRemainingColumn(), TextColumn("left")
    columns = BarColumn(), MofNCompleteColumn(), *times, TextColumn("{task.description}", markup=False)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda number, count, computation: bar.update(
            task, completed=number, total=count, description=computation, refresh=True
        )
