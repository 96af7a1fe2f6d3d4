"""A study of stock learners: the same operators for all kinds of actions, time that ends it, a page, done once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from agents.cli.arguments import compose
from experiments.studies.stock import trials
from experiments.studies.stock.study import Stock
from gensor_gym.construction import ConstructionGraph
from tests.support.coarse_figures import COARSE_FIGURES
from tests.support.in_process import search_here

pytestmark = COARSE_FIGURES
TRAINED, TESTED = "gemm(m=1024, n=1024, k=1024)", "gemm(m=512, n=32, k=512)"
LEARNERS = ("masked", "masked_writing", "ppo", "ppo_undiscounted", "dqn")


def study(folder: Path, *more: str) -> Stock:
    words = [f"output={folder}", f"operators='{TRAINED}'", f"tested='{TESTED}'", "programs=3", "num_envs=4", "resamples=20"]
    return Stock(compose([*words, *(f"~agents.{name}_10" for name in LEARNERS[:2]), *more], "stock"))


@pytest.mark.thorough
def test_it_runs_once_and_says_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search_here(monkeypatch)
    asked = study(tmp_path, "minute=0.3", *(f"~agents.{name}" for name in LEARNERS if name not in ("masked_writing", "ppo")))
    found, summary = asked(Console(quiet=True))
    assert list(found.lines) == ["random", "random_writing", "greedy", "masked_writing", "ppo"]
    for name in found.lines:
        first, best = found.regrets(name)
        assert first.shape == best.shape == (1, 1) and (best >= 0.0).all()
    assert found.regrets("greedy")[0] < found.regrets("random")[0]
    (line,) = found.lines["ppo"]
    assert line["curve"][-1][0] >= 0.3 and line["curve"][-1][1] == line["steps"] and 0.5 < line["curve"][0][5] <= 1.0
    assert summary["agents"]["masked_writing"]["illegal"] is None and summary["agents"]["ppo"]["illegal"] is not None
    before = (tmp_path / "lines.jsonl").read_bytes()
    asked(Console(quiet=True))
    assert (tmp_path / "lines.jsonl").read_bytes() == before
    page = (tmp_path / "summary.md").read_text()
    assert "masked_writing" in page and "![curves.png]" in page and (tmp_path / "regrets.png").exists()


def test_processor_time_ends_a_learning() -> None:
    envs, limit = trials.make("writing", 4, [TRAINED], "h200", "gensor"), trials.Limit(0.6)
    model = trials.learned("MaskablePPO", {"n_steps": 16, "batch_size": 64, "n_epochs": 1}, envs, 0, limit)
    times = [point[0] for point in limit.curve]
    assert times == sorted(times) and 0.6 <= times[-1] < 6.0 and model.num_timesteps == limit.curve[-1][1] > 64


@pytest.mark.thorough
def test_operators_are_the_same_for_all_kinds_of_actions() -> None:
    trained, tested, _ = trials.operators_of(f"{TRAINED}", "split/v1/test", 2500, 5, "h200", "gensor")
    widths = {c.first: len(c.values) for c in ConstructionGraph(TRAINED, "h200", "gensor").coordinates.movable()}
    assert trained == (TRAINED,) and 1 <= len(tested) <= 5
    for text in tested:
        own = ConstructionGraph(text, "h200", "gensor").coordinates.movable()
        assert all(len(column.values) <= widths.get(column.first, 0) for column in own)
    assert np.unique(tested).size == len(tested)


@pytest.mark.parametrize(
    ("word", "says"),
    [("agents.ppo.learner=PPPO", "agents.ppo"), ("agents.ppo.environment=trees", "trees"), ("minute=0", "expected more than 0")],
)
def test_bad_settings_are_named(tmp_path: Path, word: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        study(tmp_path, word)
