"""Searches of a study in the test's own process: a process of their own takes seconds to import what they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest


def one_after_the_other(
    work: Callable[[Any], Any], items: Sequence[Any], workers: int, begin: Callable[[], None] | None = None
) -> Iterator[Any]:
    """As `agents.runs.pool.side_by_side`."""
    if items and begin is not None:
        begin()
    return map(work, items)


def search_here(patch: pytest.MonkeyPatch) -> None:
    """From here on searches and certificates of studies begin no process; `test_experiments_study.py` has them."""
    for module in ("agents.runs.lines", "agents.runs.pool", "experiments.studies.generalise.scores"):
        patch.setattr(f"{module}.side_by_side", one_after_the_other)


def warm_little(patch: pytest.MonkeyPatch) -> None:
    """Searches are timed from their first program on: what they load and compile is done by a few evaluations before."""
    patch.setattr("agents.runs.anytime.WARM_UP_EVALUATIONS", 64)
