"""Tables of papers: published numbers stand beside ours, labelled as what they are."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from experiments.reproduce import reproduce, show
from experiments.tables.table import Stamp, Table
from gensor_gym.fingerprint import fingerprint

CONF = Path(__file__).resolve().parents[1] / "conf" / "reproduce.yaml"


def _config(table: str, folder: Path, **values: object) -> DictConfig:
    """As conf/reproduce.yaml, without its part for the command line."""
    config = OmegaConf.load(CONF)
    del config["hydra"]
    return OmegaConf.merge(config, {"table": table, "output": str(folder), **values})  # type: ignore[return-value]


def test_gensor_operators(tmp_path: Path) -> None:
    table, ablation = reproduce(_config("gensor_operators", tmp_path, limit=1))
    assert [row[3] for row in table.rows] == [0.287, 0.369, 0.083]
    assert all(0.1 < row[5] < 10 for row in table.rows)  # the model is of the right order
    assert all(row[1] <= row[2] * 1.001 for row in table.rows)  # the graph holds the tree
    assert "predicted" in table.columns[1] and "published" in table.columns[3]
    assert [row[0] for row in ablation.rows] == [
        "conv2d (1 shapes)", "gemm (1 shapes)", "gemv (1 shapes)", "avg_pool2d (1 shapes)",
    ]  # fmt: skip
    assert json.loads((tmp_path / "gensor_operators.json").read_text())["fingerprint"] == fingerprint()
    text = (tmp_path / "gensor_operators.md").read_text()
    assert "nothing was timed" in text and "| 0.287 |" in text


def test_gpu_published(tmp_path: Path) -> None:
    (table,) = reproduce(_config("gpu_published", tmp_path, limit=2))
    assert [row[3] for row in table.rows] == ["45.5-45.7", "47.3-50.5"] and all(0.8 < row[4] < 1.2 for row in table.rows)
    assert "predicted" in table.columns[2] and "published" in table.columns[3]
    assert "nothing was timed" in (tmp_path / "gpu_published.md").read_text()


def test_an_unknown_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing_table1"):
        reproduce(_config("nothing_table1", tmp_path))


def test_a_table_says_how_its_numbers_came_about() -> None:
    table = Table("T", Stamp.PREDICTED, ("what", "ours"), (("a", 1.0),), ("a note",), ("t.png",))
    lines = table.markdown().splitlines()
    assert lines[2] == "Stamp: **predicted** (the analytic model's latencies, nothing was timed; no claim rests on this table)."
    assert "![T](t.png)" in lines and lines[-1] == "- a note"
    console = Console(file=io.StringIO(), width=120)
    show(console, table)
    assert "stamp: predicted" in console.file.getvalue()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="1 cells"):
        Table("T", Stamp.REPLICATED, ("what", "ours"), (("a",),), ())
