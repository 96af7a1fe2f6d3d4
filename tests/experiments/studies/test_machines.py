"""A study of policies on machines held out: searches once, regrets to the best found, nothing trained near what is tested."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from agents.cli.arguments import compose
from experiments.studies.machines import Machines
from tests.support.coarse_figures import COARSE_FIGURES
from tests.support.in_process import search_here

pytestmark = COARSE_FIGURES


def study(folder: Path, *more: str) -> Machines:
    words = [f"output={folder}", "machines=[t4]", "operators=2", "seconds=[0.01,0.02]", "evaluations=[1,8]", "resamples=20"]
    return Machines(compose([*words, *more], "machines"))


@pytest.mark.thorough
def test_it_runs_once_and_says_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search_here(monkeypatch)
    asked = study(tmp_path, "~policies.columns_machines", "~strategies.markov")
    found, summary = asked(Console(quiet=True))
    assert [of.shape for of in found.lines.values()] == [(2, 1)] * 3 and list(summary["scores"]) == ["all", "t4"]
    at = np.array([1.0, 8.0, 1e9])
    curves = {name: found.regrets(name, at, 0) for name in found.lines}
    assert all((np.diff(of, axis=2) <= 0).all() and (of >= 0).all() for of in curves.values())
    assert np.min([of[..., -1] for of in curves.values()], axis=0).max() == 0.0
    before = (tmp_path / "lines.jsonl").read_bytes()
    asked(Console(quiet=True))
    assert (tmp_path / "lines.jsonl").read_bytes() == before
    page = (tmp_path / "summary.md").read_text()
    assert "nearest_descents" in page and "![regret.png]" in page and (tmp_path / "regret.png").exists()


@pytest.mark.parametrize(
    ("word", "says"),
    [("machines=[t4,h100]", "h100"), ("reference=greedy", "reference"), ("+strategies.roler={}", "no strategy")],
)
def test_bad_settings_are_named(tmp_path: Path, word: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        study(tmp_path, word)
