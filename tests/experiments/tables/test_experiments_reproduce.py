"""Tables of papers: published numbers stand beside ours, labelled as what they are."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from agents.cli.arguments import compose
from experiments.tables.reproduce import known, reproduce, show
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
