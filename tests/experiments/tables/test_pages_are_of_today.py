"""Pages of papers' tables say under which model they were made: another than the tree's fails, unless the page says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.runs.settings import ROOT
from experiments.tables.reproduce import OLDER, lines, mark, marked

SEARCHED = ("gensor_*", "ansor*", "autotvm*")
"""Pages of searches by the model of a GPU; that of IntelliGen's fused operators is of another model."""
PAGES = [page for pattern in SEARCHED for page in sorted((ROOT / "results" / "reproduce").glob(f"{pattern}.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_predicted_page_is_of_the_trees_model(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if OLDER in text:
        return
    found = dict(marked(text))
    assert found, f"{page.name} names no model: expected a line such as {lines(['rtx4090'])[0]!r}"
    assert found == {name: mark(name) for name in found}, f"make {page.name} again: gensor reproduce table={page.stem}"


def test_a_mark_follows_the_machine() -> None:
    assert mark("rtx4090") != mark("orin_nano")
    assert dict(marked(lines(["rtx4090"])[0])) == {"rtx4090": mark("rtx4090")}
