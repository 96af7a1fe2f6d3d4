"""The page of all results: runs are grouped by configuration, figures are inside, bad folders are named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.reports import report
from experiments.reports.page import from_markdown
from experiments.training import curves

PNG = b"\x89PNG\r\n\x1a\n"
"""Enough of a picture for a page that does not look at it."""


def make_run(folder: Path, seed: int, rate: float, gain: float, hardware: str = "h200") -> Path:
    """A training run whose return rises by `gain` over 100 steps."""
    folder.mkdir(parents=True)
    config = {"agent": "ppo", "seed": seed, "output": str(folder), "env": {"hardware": hardware}, "ppo": {"learning_rate": rate}}
    card = {"agent": "ppo", "config": config, "training_seconds": 10.0 + seed, "evaluation": {"score": 1.0 + seed}}
    (folder / "card.json").write_text(json.dumps(card))
    points = [{"steps": s, "mean_return": gain * s / 100} for s in range(0, 101 - seed, 10)]
    (folder / "curve.jsonl").write_text("".join(json.dumps(p) + "\n" for p in points))
    return folder


def test_seeds_of_one_configuration_are_one_group(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / f"{rate}_{seed}", seed, rate, 1.0 + seed) for rate in (0.1, 0.2) for seed in (0, 2)]
    groups = curves.group(map(curves.read_run, folders))
    assert {label: len(runs) for label, runs in groups.items()} == {"ppo, learning_rate=0.1": 2, "ppo, learning_rate=0.2": 2}
    steps, returns = curves.common(groups["ppo, learning_rate=0.1"])
    assert steps[-1] == 90 and np.allclose(returns[:, -1], [0.9, 2.7])  # the shorter run ends at 90
    (row, _) = curves.rows(groups)
    assert row == ("ppo, learning_rate=0.1", "2", "100", "1.850 (1.000 to 2.700)", "11 s", "score 2.000")


def test_page_holds_curves_pages_and_pictures(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a", 0, 0.1, 1.0)
    make_run(tmp_path / "runs" / "b", 1, 0.1, 2.0, "a100")
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "regret.png").write_bytes(PNG)
    text = "# A study\n\n| a | b |\n|---|---:|\n| 1 | <2 |\n\n![regret](regret.png) ![gone](gone.png)\n"
    (tmp_path / "study" / "summary.md").write_text(text)
    output = tmp_path / "page" / "report.html"
    report.main([str(tmp_path / "runs"), str(tmp_path / "study"), "--output", str(output), "--title", "T & T"])
    page = output.read_text()
    assert page.count("data:image/png;base64,") == 3  # two machines' curves and the study's figure
    assert "<title>T &amp; T</title>" in page and "<h2>A study</h2>" in page and "&lt;2" in page
    assert "gone.png" in page and 'src="gone.png"' not in page
    assert "http://" not in page and "https://" not in page


def test_markdown_without_a_title_keeps_its_first_line(tmp_path: Path) -> None:
    title, body = from_markdown("first\nsecond", tmp_path)
    assert title == "" and "first" in body and "second" in body


def test_what_cannot_be_shown_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere: there is none"):
        report.make_page([tmp_path / "nowhere"], "t")
    with pytest.raises(ValueError, match="no results below"):
        report.make_page([tmp_path], "t")
    folder = make_run(tmp_path / "run", 0, 0.1, 1.0)
    (folder / "curve.jsonl").write_text('{"steps": 1}\n')
    with pytest.raises(ValueError, match="run: card.json or curve.jsonl"):
        curves.read_run(folder)
