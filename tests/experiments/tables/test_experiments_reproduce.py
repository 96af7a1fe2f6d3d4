"""Tables of papers: found by name, stamped, of today's model."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from agents.cli.arguments import compose
from agents.runs.settings import ROOT
from experiments.tables.reproduce import OLDER, known, lines, mark, marked, reproduce, show
from experiments.tables.table import Stamp, Table


def _config(table: str, folder: Path, **values: object) -> DictConfig:
    """As conf/reproduce.yaml, without its part for the command line."""
    config = compose([], "reproduce")
    return OmegaConf.merge(config, {"table": table, "output": str(folder), **values})  # type: ignore[return-value]


def test_gpu_published(tmp_path: Path) -> None:
    (table,) = reproduce(_config("gpu_published", tmp_path, limit=2))
    assert [row[3] for row in table.rows] == ["45.5-45.7", "47.3-50.5"] and all(0.8 < row[4] < 1.2 for row in table.rows)
    assert "predicted" in table.columns[2] and "published" in table.columns[3]
    assert "nothing was timed" in (tmp_path / "gpu_published.md").read_text()


def test_tables_are_found_in_their_folder() -> None:
    """Modules that make tables, and not those that help them."""
    assert {"gensor_gemm", "ansor", "sim_to_real"} <= set(known()) and not {"reproduce", "table", "recorded"} & set(known())


def test_an_unknown_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing_table1.*expected one of ansor, autotvm"):
        reproduce(_config("nothing_table1", tmp_path))


def test_a_table_says_how_its_numbers_came_about() -> None:
    table = Table("T", Stamp.PREDICTED, ("what", "ours"), (("a", 1.0),), ("a note",), ("t.png",))
    lines = table.markdown().splitlines()
    said = "latencies are the analytic model's, no kernel was timed; no claim rests on this table"
    assert lines[2] == f"Stamp: **predicted** ({said})."
    assert "![T](t.png)" in lines and lines[-1] == "- a note"
    console = Console(file=io.StringIO(), width=120)
    show(console, table)
    assert "stamp: predicted" in console.file.getvalue()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="1 cells"):
        Table("T", Stamp.REPLICATED, ("what", "ours"), (("a",),), ())


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
