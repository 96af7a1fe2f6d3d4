"""Studies on a few operators: each runs once and says what it found, keeps its budgets, and names bad settings."""

from __future__ import annotations

from collections.abc import Callable
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
from experiments.studies.fused import FusedStudy, ModelSession, Search, run_search
from experiments.studies.machines import Machines
from experiments.studies.stock import trials
from experiments.studies.stock.study import Stock
from experiments.studies.study import Study
from gensor_gym.construction import ConstructionGraph
from gensor_gym.dataflow.suite import make
from gensor_gym.gir.graph import GirGraph
from gensor_gym.graph.tables.layout import SPATIAL_SLOTS
from gensor_gym.hardware import get
from tests.support.coarse_figures import COARSE_FIGURES
from tests.support.in_process import search_here

pytestmark = COARSE_FIGURES

def fused_study(folder: Path, *more: str) -> FusedStudy:
    few = ["parts=[fused/unseen]", "seeds=[0]", "budget_s=0.02", "seconds=[0.01,0.02]", "evaluations=[8,32]", "resamples=20"]
    return FusedStudy(compose(["~strategies.gir_ppo", "~strategies.gir_markov", f"output={folder}", *few, *more], "fused_study"))


def cost_study(folder: Path, *words: str) -> CostModels:
    return CostModels(compose([f"output={folder}", *words], "cost_models"))


def page_of_again(study: Study, folder: Path) -> str:
    """The page after a second run, which makes no line again."""
    before = (folder / "lines.jsonl").read_bytes()
    study(Console(quiet=True))
    assert (folder / "lines.jsonl").read_bytes() == before
    return (folder / "summary.md").read_text()


@pytest.mark.thorough
def test_the_fused_study_runs_once_and_says_what_it_found(tmp_path: Path) -> None:
    asked = fused_study(tmp_path)
    found, summary = asked(Console(quiet=True))
    part = found["fused/unseen"]
    assert [of.shape for of in part.lines.values()] == [(4, 1)] * 4
    assert list(summary["parts"]["fused/unseen"]) == list(asked.strategies)
    at = np.array([1.0, 8.0, 1e9])
    for name in asked.strategies:
        regrets = part.regrets(name, at, 0)
        assert regrets.shape == (4, 1, 3) and (np.diff(regrets, axis=2) <= 0).all() and (regrets >= 0).all()
    page = page_of_again(asked, tmp_path)
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


def machines_study(folder: Path, *more: str) -> Machines:
    words = [f"output={folder}", "machines=[t4]", "operators=2", "seconds=[0.01,0.02]", "evaluations=[1,8]", "resamples=20"]
    return Machines(compose([*words, *more], "machines"))


@pytest.mark.thorough
def test_machines_runs_once_and_says_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search_here(monkeypatch)
    asked = machines_study(tmp_path, "~policies.columns_machines", "~strategies.markov")
    found, summary = asked(Console(quiet=True))
    assert [of.shape for of in found.lines.values()] == [(2, 1)] * 3 and list(summary["scores"]) == ["all", "t4"]
    at = np.array([1.0, 8.0, 1e9])
    curves = {name: found.regrets(name, at, 0) for name in found.lines}
    assert all((np.diff(of, axis=2) <= 0).all() and (of >= 0).all() for of in curves.values())
    assert np.min([of[..., -1] for of in curves.values()], axis=0).max() == 0.0
    page = page_of_again(asked, tmp_path)
    assert "nearest_descents" in page and "![regret.png]" in page and (tmp_path / "regret.png").exists()


TRAINED, TESTED = "gemm(m=1024, n=1024, k=1024)", "gemm(m=512, n=32, k=512)"
LEARNERS = ("masked", "masked_writing", "ppo", "ppo_undiscounted", "dqn")


def stock_study(folder: Path, *more: str) -> Stock:
    words = [f"output={folder}", f"operators='{TRAINED}'", f"tested='{TESTED}'", "programs=3", "num_envs=4", "resamples=20"]
    return Stock(compose([*words, *(f"~agents.{name}_10" for name in LEARNERS[:2]), *more], "stock"))


@pytest.mark.thorough
def test_stock_runs_once_and_says_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search_here(monkeypatch)
    asked = stock_study(tmp_path, "minute=0.3", *(f"~agents.{LEARNERS[i]}" for i in (0, 3, 4)))
    found, summary = asked(Console(quiet=True))
    assert list(found.lines) == ["random", "random_writing", "greedy", "masked_writing", "ppo"]
    for name in found.lines:
        first, best = found.regrets(name)
        assert first.shape == best.shape == (1, 1) and (best >= 0.0).all()
    assert found.regrets("greedy")[0] < found.regrets("random")[0]
    (line,) = found.lines["ppo"]
    assert line["curve"][-1][0] >= 0.3 and line["curve"][-1][1] == line["steps"] and 0.5 < line["curve"][0][5] <= 1.0
    assert summary["agents"]["masked_writing"]["illegal"] is None and summary["agents"]["ppo"]["illegal"] is not None
    page = page_of_again(asked, tmp_path)
    assert "masked_writing" in page and "![curves.png]" in page and (tmp_path / "regrets.png").exists()


def test_processor_time_ends_a_learning() -> None:
    settings = {"n_steps": 16, "batch_size": 64, "n_epochs": 1}
    for seconds in (1e-3, 0.6):  # the first learning loads and compiles what it needs
        envs, limit = trials.make("writing", 4, [TRAINED], "h200", "gensor"), trials.Limit(seconds)
        model = trials.learned("MaskablePPO", settings, envs, 0, limit)
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


MACHINE, FEW = "zen4_avx2_1c", 15


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("experiments.studies.cost_models.learners", "agents.hybrids.correction"):
        monkeypatch.setattr(f"{module}.ROUNDS", 30)


def test_cost_models_runs_once_and_says_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search_here(monkeypatch)
    words = [f"replayed=[{MACHINE}]", f"operators={FEW}", "seeds=[0]", "resamples=20"]
    words += ["~held_out.classes", "~held_out.operators.zen4_1c", f"held_out.operators.{MACHINE}=5"]
    words += ["learners.network.epochs=1", "learners.attention.epochs=1", "orders=[operators_random,some_disagreement]"]
    study = cost_study(tmp_path, *words, "budgets=[60,120]", "repeats=2")
    _, summary = study(Console(quiet=True))
    (one,) = summary["ranked"]["operators"].values()
    assert one["operators"] == FEW and len(one["scores"]) == 6
    first = {name: of[1]["mean"] for name, of in one["scores"].items()}
    assert one["apart"]["input, trees"][1]["mean"] == pytest.approx(first["trees_sequence"] - first["trees_listwise"])
    assert all(0 <= of[3]["mean"] <= of[2]["mean"] <= of[1]["mean"] for of in one["scores"].values())
    assert "| `attention` |" in page_of_again(study, tmp_path) and (tmp_path / "cost_models.png").exists()


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


BAD = {
    fused_study: {"budget_s=0.001": "budget_s", "parts=[fused/tst]": "fused/test", "+strategies.roler={}": "no strategy"},
    machines_study: {"machines=[t4,h100]": "h100", "reference=greedy": "reference", "+strategies.roler={}": "no strategy"},
    stock_study: {
        "agents.ppo.learner=PPPO": "agents.ppo", "agents.ppo.environment=trees": "trees", "minute=0": "expected more than 0"
    },
    cost_study: {"replayed=[h200]": "h200", "~learners.trees": "learners", "repeats=6": "at most 5"},
}  # fmt: skip


@pytest.mark.parametrize(("study", "word"), [(study, word) for study, words in BAD.items() for word in words])
def test_bad_settings_are_named(study: Callable[..., Study], word: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=BAD[study][word]):
        study(tmp_path, word)
