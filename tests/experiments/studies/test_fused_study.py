"""A study of searches of fused operators: one line for each search, regrets to a certain optimum, a page; done once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from rich.console import Console

from agents.cli.arguments import CONF
from experiments.studies.fused import FusedStudy, ModelSession, Search, run_search
from gensor_gym.dataflow.suite import make
from gensor_gym.gir.graph import GirGraph
from gensor_gym.hardware import get
from tests.support.coarse_figures import COARSE_FIGURES

pytestmark = COARSE_FIGURES


def study(folder: Path, *more: str) -> FusedStudy:
    few = ["parts=[fused/unseen]", "seeds=[0]", "budget_s=0.02", "seconds=[0.01,0.02]", "evaluations=[8,32]", "resamples=20"]
    words = [*few, *more]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return FusedStudy(compose("fused_study", ["~strategies.gir_ppo", "~strategies.gir_markov", f"output={folder}", *words]))


@pytest.mark.thorough
def test_it_runs_once_and_says_what_it_found(tmp_path: Path) -> None:
    asked = study(tmp_path)
    found, summary = asked(Console(quiet=True))
    part = found["fused/unseen"]
    assert [of.shape for of in part.lines.values()] == [(4, 1)] * 4
    assert list(summary["parts"]["fused/unseen"]) == list(asked.strategies)
    at = np.array([1.0, 8.0, 1e9])
    for name in asked.strategies:
        regrets = part.regrets(name, at, 0)
        assert regrets.shape == (4, 1, 3) and (np.diff(regrets, axis=2) <= 0).all() and (regrets >= 0).all()
    before = (tmp_path / "lines.jsonl").read_bytes()
    asked(Console(quiet=True))
    assert (tmp_path / "lines.jsonl").read_bytes() == before
    page = (tmp_path / "summary.md").read_text()
    assert "gir_descent" in page and "regret_unseen.png" in page and (tmp_path / "regret_unseen.png").exists()


def test_a_search_is_charged_for_all_it_asks_and_ends_with_its_time() -> None:
    line = run_search(Search("gir_descent", {}, "softmax(m=64, n=96)", "cascade_lake", "gir", 0, 0.05))
    graph = GirGraph(make("softmax", m=64, n=96), get("cascade_lake"))
    evaluations, latencies, elapsed = line["curve"]
    assert latencies == sorted(latencies, reverse=True) and evaluations == sorted(evaluations) and elapsed == sorted(elapsed)
    assert latencies[0] == graph.latency(graph.initial()) and evaluations[0] == 1 and latencies[-1] >= graph.optimum()[1]
    assert line["evaluated"] >= evaluations[-1] and 0.05 <= line["elapsed_s"] < 5.0


def test_time_does_not_cut_evaluations() -> None:
    line = run_search(Search("annealing", {}, "softmax(m=64, n=96)", "cascade_lake", "gir", 0, 0.001, evaluations=300))
    assert 300 <= line["evaluated"] < 2000 and line["elapsed_s"] > 0.001 and line["wall_s"] > 0


def test_a_trial_is_an_answer_of_the_model_that_is_paid_for_once() -> None:
    graph = GirGraph(make("softmax", m=6, n=19), get("cascade_lake"))
    session, start = ModelSession(graph), graph.initial()
    other = next(iter(graph.successors(start).values()))
    found = session.measure([start, other, start])
    assert session.trials == graph.evaluations == 2 and found[0].seconds == found[2].seconds
    assert session.best is not None and session.best[1].seconds == min(found[0].seconds, found[1].seconds)


@pytest.mark.parametrize(
    ("word", "says"),
    [("budget_s=0.001", "budget_s"), ("parts=[fused/tst]", "fused/test"), ("+strategies.roler={}", "no strategy")],
)
def test_bad_settings_are_named(tmp_path: Path, word: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        study(tmp_path, word)
