"""The sections: what is digested, what of it is quick enough for every run, and where the recorded digests stand.

An update is right where something was meant to change: the text of a generator, a strategy, a table that was recorded anew.
Then `python -m pytest tests/test_identical.py --update-golden` (with `-m ""` for the slow sections as well, with
`-k kernels` for one) writes what there is now, and the commit says which items changed and why: `git diff` of
tests/golden/identical.json names them. It is never right in a change that only moves or renames code, nor where a test
fails on one machine and passes on another: then a digest is not careful enough of last digits (`digests.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

from tests.identical import episodes, files, formulas, kernels, searches
from tests.identical.digests import of

PATH = Path(__file__).resolve().parents[1] / "golden" / "identical.json"
Section = Callable[[], dict[str, str]]

QUICK: dict[str, Section] = {
    "goldens": files.goldens,
    "tables": files.tables,
    "certificates": files.certificates,
    "policies": files.policies,
    "kernels": kernels.kernels,
    "episodes": episodes.episodes,
    "searches": searches.searches,
    "searches of recorded spaces": searches.of_spaces,
    "optima": searches.optima,
    "statistics": formulas.formulas,
}


def more_kernels() -> dict[str, str]:
    """Eight times as many kernels, those of an operator and a machine as one item."""
    found = sorted((name.rsplit(" ", 2)[0], value) for name, value in kernels.kernels(8).items())
    return {name: of([value for _, value in items]) for name, items in groupby(found, key=lambda pair: pair[0])}


SLOW: dict[str, Section] = {
    "more kernels": more_kernels,
    "more episodes": lambda: episodes.episodes(8),
    "more searches": lambda: searches.searches(tasks=len(searches.TASKS)),
}


def recorded() -> dict[str, dict[str, str]]:
    """Digests by section and item."""
    return json.loads(PATH.read_text(encoding="utf-8"))["sections"] if PATH.exists() else {}


def record(section: str, found: dict[str, str]) -> None:
    """Write the digests of a section in place of those that stand there."""
    sections = recorded() | {section: found}
    known = {name: sections[name] for name in (*QUICK, *SLOW) if name in sections}
    PATH.write_text(json.dumps({"how": __doc__, "sections": known}, indent=1) + "\n", encoding="utf-8")


def differing(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Items in words: those that differ, went or came."""
    said = {name: f"{name}: {before.get(name, 'not there before')} -> {now.get(name, 'not there now')}"
            for name in (*before, *now) if before.get(name) != now.get(name)}  # fmt: skip
    return list(said.values())
