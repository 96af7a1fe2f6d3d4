"""A progress bar on the terminal while pieces of a network are searched; without a terminal nothing is shown."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from agents.pieces import OnTask


@contextmanager
def shown(on_task: OnTask | None) -> Iterator[OnTask]:
    """Context that yields the function to call before each search.

    It is the caller's `on_task`, or else a function that moves a bar on stderr, or does nothing without a terminal.
    """
    if on_task is not None:
        yield on_task
    elif sys.stderr.isatty() and find_spec("rich") is not None:
        with _bar() as moved:
            yield moved
    else:
        yield lambda number, count, computation: None


@contextmanager
def _bar() -> Iterator[OnTask]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda number, count, computation: bar.update(
            task, completed=number, total=count, description=computation, refresh=True
        )
