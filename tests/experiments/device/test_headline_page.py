"""The page of the headline comparison from made-up rows: ratios, verdicts, and what it says when nothing is told apart."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from experiments.device import headline_page  # noqa: E402

OPS = [f"reduce_sum(m={16 * i}, k=64)" for i in range(1, 13)]
NAMES = ("markov_ext", "columns", "columns_fine_tuned")


def make(folder: Path, faster: float, spread: float, cut: str = "") -> None:
    """Twelve operators, two seeds; the fine-tuned policy takes `faster` times the traverser's time, in the geometric mean."""
    rng = np.random.default_rng(0)
    offs = rng.normal(0.0, spread, len(OPS))
    rows: list[dict] = []
    for op, off in zip(OPS, offs - offs.mean(), strict=True):
        samples = {"torch": [2e-6] * 15}
        for seed in (0, 1):
            for name in NAMES:
                label = f"{name}/{seed}"
                about = {"run": "r", "operator": op, "strategy": name, "label": label, "seed": seed}
                rows.append({**about, "kind": "search", "schedule": "s", "trials": 10, "cut": op == cut and label == "columns/1"})
                scale = faster * np.exp(off) if name == "columns_fine_tuned" else 1.0
                samples[label] = list(1e-6 * scale * (1.0 + 0.001 * rng.random(15)))
        rows.append({"run": "r", "kind": "together", "operator": op, "samples": samples})
    (folder / "headline.jsonl").write_text("".join(json.dumps({"key": str(i), **row}) + "\n" for i, row in enumerate(rows)))
    tuned = folder / "fine_tuning"
    tuned.mkdir()
    lines = [{"operator": "a", "seconds": 1e-6 * 0.5 * (9 - i // 2), "status": "OK", "run": "r"} for i in range(16)]
    lines.append({"operator": "b", "seconds": None, "status": "CRASHED", "run": "r"})
    (tuned / "measured.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = {"from": "results/policies/p", "measurements": 17, "seconds": 4.0, "hardware": "h100", "trained_for": "h200"}
    (tuned / "card.json").write_text(json.dumps({"fine_tuned": {**told, "other_rules": [], "device": "NVIDIA H100"}}))


def test_a_difference_is_said_with_its_interval(tmp_path: Path) -> None:
    make(tmp_path, 0.9, 0.02, cut=OPS[0])
    assert headline_page.write(tmp_path) == ["headline.md", "headline.png"]
    text = (tmp_path / "headline.md").read_text()
    lines = text.splitlines()
    (said,) = [line for line in lines if line.startswith("- `columns_fine_tuned`") and "`markov_ext`'s" in line]
    assert "% faster (p" in said and "not told apart" not in said
    assert any("`columns_fine_tuned`" in line and "`columns`'s time" in line and "faster" in line for line in lines)
    assert any("- `columns` takes" in line and "not told apart" in line for line in lines)
    assert "23 pairs on 12 operators" in text and f"columns/1: {OPS[0]}" in text
    assert "17 kernels of 2 operators of the train part in 4 s (4.2 a second; 1 CRASHED, 16 OK)" in text
    assert "trained for the model of h200" in text and ": 4.50, 4.00, 3.50, 3.00, 2.50, 2.00, 1.50, 1.00." in text
    ratios = headline_page.ratios_of([json.loads(row) for row in (tmp_path / "headline.jsonl").open()], "markov_ext")
    assert len(ratios["columns"][OPS[0]]) == 1 and len(ratios["columns_fine_tuned"][OPS[0]]) == 2


def test_where_nothing_is_told_apart_the_page_says_so(tmp_path: Path) -> None:
    make(tmp_path, 0.98, 0.15)
    headline_page.write(tmp_path)
    lines = (tmp_path / "headline.md").read_text().splitlines()
    assert len([line for line in lines if "`columns_fine_tuned`" in line and "not told apart" in line]) == 2
    assert not any(line.startswith("- ") and "% faster" in line for line in lines)


def test_without_a_comparison_it_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert headline_page.main([str(tmp_path)]) == 2 and "run stage headline first" in capsys.readouterr().err
    assert headline_page.main([]) == 2
