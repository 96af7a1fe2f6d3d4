"""Tables of papers: published numbers stand beside ours, labelled as what they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.reproduce import reproduce
from gensor_gym.fingerprint import fingerprint


def test_gensor_operators(tmp_path: Path) -> None:
    table, ablation = reproduce("gensor_operators", tmp_path, limit=1)
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
    (table,) = reproduce("gpu_published", tmp_path, limit=2)
    assert [row[3] for row in table.rows] == ["45.5-45.7", "47.3-50.5"] and all(0.8 < row[4] < 1.2 for row in table.rows)
    assert "predicted" in table.columns[2] and "published" in table.columns[3]
    assert "nothing was timed" in (tmp_path / "gpu_published.md").read_text()


def test_an_unknown_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing_table1"):
        reproduce("nothing_table1", tmp_path, None)
