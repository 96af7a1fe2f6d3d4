"""The study of cost models on a few operators: it runs once, learners find what is there, orders keep their budgets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from agents.cli.arguments import compose
from agents.hybrids.correction import centred
from experiments.studies.cost_models.jobs import recorded
from experiments.studies.cost_models.learners import listwise_trees, network
from experiments.studies.cost_models.recording import ORDERS, disagreement, replay
from experiments.studies.cost_models.study import CostModels
from gensor_gym.graph.tables.layout import SPATIAL_SLOTS
from tests.support.coarse_figures import COARSE_FIGURES
from tests.support.in_process import search_here

pytestmark = COARSE_FIGURES
MACHINE, FEW = "zen4_avx2_1c", 15


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("experiments.studies.cost_models.learners", "agents.hybrids.correction"):
        monkeypatch.setattr(f"{module}.ROUNDS", 30)


def test_it_runs_once_and_says_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search_here(monkeypatch)
    words = [f"output={tmp_path}", f"replayed=[{MACHINE}]", f"operators={FEW}", "seeds=[0]", "resamples=20"]
    words += ["~held_out.classes", "~held_out.operators.zen4_1c", f"held_out.operators.{MACHINE}=5"]
    words += ["learners.network.epochs=1", "learners.attention.epochs=1", "orders=[operators_random,some_disagreement]"]
    study = CostModels(compose([*words, "budgets=[60,120]", "repeats=2"], "cost_models"))
    _, summary = study(Console(quiet=True))
    (one,) = summary["ranked"]["operators"].values()
    assert one["operators"] == FEW and len(one["scores"]) == 6
    first = {name: of[1]["mean"] for name, of in one["scores"].items()}
    assert one["apart"]["input, trees"][1]["mean"] == pytest.approx(first["trees_sequence"] - first["trees_listwise"])
    assert all(0 <= of[3]["mean"] <= of[2]["mean"] <= of[1]["mean"] for of in one["scores"].values())
    before = (tmp_path / "lines.jsonl").read_bytes()
    study(Console(quiet=True))
    assert (tmp_path / "lines.jsonl").read_bytes() == before
    assert "| `attention` |" in (tmp_path / "summary.md").read_text() and (tmp_path / "cost_models.png").exists()


def test_learners_rank_by_what_their_input_shows() -> None:
    observed, sequences = recorded(MACHINE, FEW, validation=False)
    times = sequences.tokens[:, SPATIAL_SLOTS - 1, 0].astype(np.float64)  # log2 of the innermost register tile
    known, asked = np.isin(observed.groups, range(10)), observed.groups >= 10
    parts = sequences.packed()
    flat, given = sequences.flat(), (times[known], observed.groups[known])
    by_trees = listwise_trees(flat[known], *given, flat[asked], 0, 4.0, model=False)
    by_network = network(tuple(of[known] for of in parts), *given, tuple(of[asked] for of in parts), 0, 4.0, 60, 4e-3)
    groups = observed.groups[asked] - 10
    for found in (by_trees, by_network):
        ours, goal = (centred(values, groups, np.ones(len(groups))) for values in (found, times[asked]))
        assert np.corrcoef(ours, goal)[0, 1] > 0.7


@pytest.mark.parametrize("order", ORDERS)
def test_a_replay_records_within_its_budget_and_never_what_is_held_out(order: str) -> None:
    observed = recorded(MACHINE, FEW, validation=False)[0]
    out = observed.groups < 5
    steps = list(replay(observed, out, order, 0, (40, 80)))
    assert all(budget <= len(at) < budget + 20 and not out[at].any() for (at, _), budget in zip(steps, (40, 80), strict=True))
    assert set(steps[0][0]) < set(steps[1][0]) and np.isfinite(steps[1][1]).all()


def test_an_ensemble_that_agrees_on_the_order_has_nothing_to_learn() -> None:
    assert disagreement(np.array([[1.0, 2.0, 4.0], [2.0, 3.0, 5.0]])) == 0.0
    assert disagreement(np.array([[0.0, 1.0], [3.0, 0.0]])) == 1.0


@pytest.mark.parametrize(
    ("word", "says"), [("replayed=[h200]", "h200"), ("~learners.trees", "learners"), ("repeats=6", "at most 5")]
)
def test_bad_settings_are_named(tmp_path: Path, word: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        CostModels(compose([f"output={tmp_path}", word], "cost_models"))
