"""The study of generalisation: curves that are exact, searches that are kept, statistics that pair, a page with figures."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf
from rich.console import Console

from agents import get_strategy
from agents.core.watched import Curve, WatchedGraph
from agents.learners.loading import save_policy
from agents.learners.registry import get_learner
from agents.learners.stored import POLICY, save_tensors
from agents.policies.training_tasks import bound
from experiments.commands.arguments import compose
from experiments.common.anytime import Search, constructing, run_search, spend
from experiments.common.journal import read_rows
from experiments.common.optima import optima
from experiments.statistics import paired, statistics
from experiments.studies import intervals
from experiments.studies.generalise import costs as generalise_costs
from experiments.studies.generalise import policies
from experiments.studies.generalise import report as generalise_report
from experiments.studies.generalise.generalise import Generalisation
from experiments.studies.generalise.plan import Contender, Plan, modelled, plan_of, searches, searches_of
from experiments.studies.generalise.policies import Trained
from experiments.studies.generalise.scores import Regrets, task_of
from experiments.studies.generalise.summary import groups_of
from experiments.training.trainings import training_of
from experiments.tuning import tune_evaluations
from experiments.tuning.settings import distinct
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact import certify
from gensor_gym.graph.tables.layout import LAYOUT_VERSION
from gensor_gym.measure.session import BudgetSpent
from tests.support.coarse_figures import COARSE_FIGURES
from tests.support.in_process import search_here

pytestmark = COARSE_FIGURES
GEMM = "gemm(m=4, n=16, k=4)"
GEMV = "gemv(m=16, k=8)"
DEPTHWISE = "depthwise_conv2d(n=1, c=2, h=4, w=4, r=3, s=3, padding=1)"
SMALL_WALKS = {"walkers": 2, "steps": 8, "refiners": 2, "refine_steps": 4, "descents": 2}


def make_columns(folder: Path, seed: int) -> None:
    """As `make_policy`, one that writes programs column by column."""
    import torch

    from agents.columns.network import ColumnNetwork

    folder.mkdir(parents=True)
    torch.manual_seed(seed)
    save_tensors(folder / POLICY, ColumnNetwork(8).state_dict())
    _write_card(folder, seed, "columns", {"width": 8})


def make_policy(folder: Path, seed: int) -> None:
    """A policy with the weights that it begins with, and its card."""
    from gensor_gym.env.sb3 import make_sb3

    envs = make_sb3(num_envs=2, operator=GEMM, hardware="h200", space="gensor")
    folder.mkdir(parents=True)
    settings = {"net_arch": [64, 64], "learning_rate": 3e-4}
    save_policy(folder / POLICY, get_learner("ppo").make(settings, envs, seed))
    _write_card(folder, seed, "ppo", settings)


def _write_card(folder: Path, seed: int, agent: str, settings: dict) -> None:
    """What the study reads of a card."""
    card = {
        "agent": agent, "layout": LAYOUT_VERSION, "operators": "split/v1/train",
        "sees": training_of(agent).sees,
        "training_seconds": 10.0 + seed, "training_steps": 1000,
        "config": {"seed": seed, "agent": settings, "env": {"hardware": "h200", "space": "gensor"}},
    }  # fmt: skip
    card |= bound(card["operators"], card["config"]["env"])
    (folder / "card.json").write_text(json.dumps(card))


def watched(limit: int, operator: str = GEMM) -> WatchedGraph:
    return WatchedGraph(operator, "h200", "gensor", limit)


def test_a_watched_graph_is_exact_and_ends() -> None:
    graph, plain = watched(50), ConstructionGraph(GEMM, "h200", "gensor")
    rng = np.random.default_rng(0)
    rows = graph.stack([graph.random_schedule(rng) for _ in range(60)])
    least = np.minimum.accumulate(plain.latencies(rows))[:50]
    graph.latencies(rows[:20])
    with pytest.raises(BudgetSpent, match="50 of 50"):
        graph.latencies(rows[20:])
    assert graph.evaluations == 50
    assert graph.curve.best(np.arange(1, 51)).tolist() == least.tolist()
    assert graph.curve.best(0) == math.inf
    assert graph.curve.elapsed == sorted(graph.curve.elapsed)
    with pytest.raises(ValueError, match="limit 0"):
        watched(0)


def test_walks_tell_what_they_found_and_when() -> None:
    """The curve of compiled walks ends at the best program that the same search without watching finds."""
    strategy = get_strategy("markov", **SMALL_WALKS)
    graph, plain = watched(10**6), ConstructionGraph(GEMM, "h200", "gensor")
    found = strategy.construct(graph, np.random.default_rng(3))  # type: ignore[attr-defined]
    other = strategy.construct(plain, np.random.default_rng(3))  # type: ignore[attr-defined]
    assert found.latencies == other.latencies and graph.evaluations == plain.evaluations == other.evaluations
    assert graph.curve.latencies[-1] == found.latencies[0]
    assert graph.curve.evaluations == sorted(graph.curve.evaluations) and graph.curve.evaluations[-1] <= graph.evaluations
    assert graph.curve.evaluations[0] == 1 and graph.curve.latencies[0] == plain.latency(plain.initial())


def test_what_walks_find_beyond_the_limit_does_not_count() -> None:
    whole, cut = watched(10**6), watched(60)
    strategy = get_strategy("markov", **SMALL_WALKS)
    strategy.construct(whole, np.random.default_rng(1))  # type: ignore[attr-defined]
    with pytest.raises(BudgetSpent):
        strategy.construct(cut, np.random.default_rng(1))  # type: ignore[attr-defined]
    assert cut.evaluations == 60
    assert cut.curve.latencies[-1] == whole.curve.best(60)


@pytest.mark.parametrize("name", ["greedy", "beam", "random_walk", "markov", "model_annealing", "model_evolution"])
def test_searches_spend_their_evaluations_and_come_near(name: str) -> None:
    values = SMALL_WALKS if name == "markov" else {}
    search = Search(name, name, values, GEMM, "h200", "gensor", 0, 3000)
    row, again = run_search(search), run_search(search)
    assert row["evaluated"] == 3000 and row["curve"][:2] == again["curve"][:2] and row["key"] == search.key
    optimum = certify(ConstructionGraph(GEMM, "h200", "gensor")).optimum
    assert optimum <= row["curve"][1][-1] <= 1.2 * optimum
    assert row["first"]["evaluations"] <= 3000


def test_a_strategy_that_only_measures_is_refused() -> None:
    with pytest.raises(ValueError, match="does not construct"):
        spend(Search("x", "genetic", {}, GEMM, "h200", "gensor", 0, 10), watched(10), np.random.default_rng(0))
    assert {"markov", "ppo", "beam", "model_annealing", "random_walk"} <= set(constructing())


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    folder = tmp_path_factory.mktemp("generalise")
    for seed in (0, 1):
        make_policy(folder / f"p{seed}", seed)
        make_columns(folder / f"c{seed}", seed)
    tuned = folder / "tuned.json"
    values = {"64": {**SMALL_WALKS, "walkers": 1}, "512": SMALL_WALKS}
    within = {"0.02": SMALL_WALKS, "0.1": values["64"]}
    tuned.write_text(json.dumps({"strategy": "markov", "values": values, "values_within": within}))
    same = folder / "same.json"
    two = {"values": dict.fromkeys(("64", "512"), {"chains": 2}), "values_within": dict.fromkeys(("0.02", "0.1"), {"chains": 2})}
    same.write_text(json.dumps({"strategy": "model_annealing", **two}))
    return plan_of(
        compose(
            [
                f"operators=['{GEMM}','{GEMV}','{DEPTHWISE}','elementwise(name=\"exp\", shape=(8, 8))']", "seeds=[0,1]",
                "evaluations=600", "checkpoints=[64,512]", "seconds=[0.01,0.1]",
                "processes=1", "resamples=60", f"output={folder / 'out'}",
                f"+policies.walks={{of: ppo, parameters: {{}}, best_of: 4, folder: '{folder}/p{{seed}}'}}",
                f"+policies.chains={{of: policy_annealing, parameters: {{chains: 2, chain_steps: 8}}, best_of: 2, "
                f"folder: '{folder}/p{{seed}}'}}",
                f"policies.columns.folder='{folder}/c{{seed}}'", "policies.columns.best_of=4", "~policies.columns.train",
                f"+strategies.markov_tuned={{of: markov, tuned: '{tuned}'}}",
                f"strategies.model_annealing_tuned.tuned={same}", "strategies.markov.seeds=2", "strategies.descents.seeds=2",
                "+strategies.greedy={seeds: 2}", "~strategies.model_evolution", "~strategies.nearest_descents",
                "strategies.model_annealing_tuned.seeds=1",
            ],
            name="generalise",
        )
    )  # fmt: skip


@pytest.fixture(scope="module")
def summary(plan: Plan) -> dict:
    with pytest.MonkeyPatch.context() as patch:
        search_here(patch)
        return Generalisation(plan)(Console(quiet=True))[1]


def test_the_study_is_whole(plan: Plan, summary: dict) -> None:
    lines = (plan.output / "lines.jsonl").read_text().splitlines()
    # operators, seeds; plain strategies, tuned ones, searches of policies; those begun once, annealing for either unit among them
    assert len(lines) == 3 * 2 * (3 + 4 + 6) + 3 * (2 + 2)
    assert [task["operator"] for task in summary["tasks"]] == [str(operators.parse(t)) for t in (GEMM, GEMV, DEPTHWISE)]
    assert len(summary["left_out"]) == 1 and "elementwise" in summary["left_out"][0]
    text = (plan.output / "summary.md").read_text()
    assert "model_annealing_tuned 1), each paired with several policies" in text
    assert "elementwise" in text and "class held out" in text and "before it can have paid" in text and "markov_tuned" in text
    for name in ("regret_by_evaluations", "regret_by_seconds", "profiles_walks"):
        assert (plan.output / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    one = summary["policies"]["walks"]["rounds"]
    assert set(one) == {"greedy", "best of 4"} and one["greedy"]["evaluations"] < one["best of 4"]["evaluations"] < 600
    assert summary["policies"]["walks"]["training_s"] == [10.0, 11.0]
    assert set(summary["policies"]["chains"]["rounds"]) == {"greedy, then chains", "best of 2, then chains"}
    written = summary["policies"]["columns"]["rounds"]
    assert written["greedy"]["evaluations"] == 1 and written["best of 4"]["evaluations"] == 4, "a program is one evaluation"
    even = summary["policies"]["columns"]["break_even"]
    assert even["seconds"]["who"] in plan.strategies, "somebody is as good within the study"
    for row in map(json.loads, lines):
        whole = not row["once"] and row["strategy"] not in ("nearest", "certifier")
        assert not whole or (row["evaluated"] >= row["evaluations"] and row["elapsed_s"] >= row["seconds"]), row["strategy"]
    for name, other in one["best of 4"]["beside"].items():
        difference = one["best of 4"]["mean"]["mean"] - other["mean"]
        assert other["over"]["mean"] == pytest.approx(difference), name
        assert other["over"]["low"] <= difference <= other["over"]["high"]
        assert other["iqm_over"]["mean"] == pytest.approx(one["best of 4"]["iqm"]["mean"] - other["iqm"]["mean"]), name


def test_a_search_is_known_by_all_its_values() -> None:
    """Those at their default too: with another default a line of before is no longer this search's. Not by a policy's place."""

    def key(of: str, values: dict, policy: str = "") -> str:
        return Search("x", of, values, GEMM, "h200", "gensor", 0, 9, policy=policy).key

    default = get_strategy("model_annealing").chains  # type: ignore[attr-defined]
    assert key("model_annealing", {}) == key("model_annealing", {"chains": default})
    assert key("model_annealing", {}) != key("model_annealing", {"chains": default + 1})
    assert key("ppo", {"checkpoint": "here"}, "digest") == key("ppo", {"checkpoint": "there"}, "digest")
    assert key("ppo", {"checkpoint": "here"}, "digest") != key("ppo", {"checkpoint": "here"}, "another")


def test_a_search_has_the_episodes_asked_for_and_one_round_those_compared(plan: Plan, tmp_path: Path) -> None:
    make_columns(tmp_path / "p", 0)
    trained = Trained(tmp_path / "p", 0, 1.0, 1)
    for given, there in (({"episodes": 256}, 256), ({}, 32)):
        learned = Contender("c", "columns", given, 32, "", {}, False, "markov")
        whole, once = searches_of(learned, trained, GEMM, "h200", "gensor", 100, 0.5)
        assert (whole.parameters["episodes"], whole.once, whole.seconds) == (there, False, 0.5)
        assert (once.parameters["episodes"], once.once) == (32, True)


def test_the_host_is_no_model() -> None:
    assert modelled("H200") == "h200"
    with pytest.raises(ValueError, match=r"env.hardware 'host'.*expected a machine of constants: h200"):
        modelled("host")


def test_the_difference_of_interquartile_means_is_paired() -> None:
    """What all scores have in common does not widen the interval, however far they lie apart."""
    theirs = np.random.default_rng(0).exponential(1.0, size=(12, 5, 1))
    assert intervals.iqm_difference(theirs - 0.5, theirs, 200) == pytest.approx({"mean": -0.5, "low": -0.5, "high": -0.5})
    shuffled = theirs[::-1] - 0.5
    assert intervals.iqm_difference(shuffled, theirs, 200)["high"] > -0.4


def test_what_is_done_is_not_done_again(plan: Plan, summary: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plan.output / "lines.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"torn')  # a write that a kill interrupted
    made: list = []
    monkeypatch.setattr("experiments.common.lines.side_by_side", lambda work, left, processes: made.extend(left) or [])
    _, again = Generalisation(plan)(Console(quiet=True))
    assert made == [] and path.read_bytes() == whole
    assert again["policies"] == summary["policies"] and again["strategies"] == summary["strategies"]


def test_tuned_values_are_those_of_the_nearest_number(plan: Plan, summary: dict) -> None:
    found = _study(plan)
    for count, variant in ((100, "markov_tuned@64"), (400, "markov_tuned@512")):
        at = np.full((3, 2, 1), float(count))
        assert found.regret("markov_tuned", [count]).tolist() == found._best(variant, at, 0).tolist()
    several = found.regret("greedy", [1, 10, 600])
    assert (np.diff(several, axis=2) <= 0).all() and (several >= 0).all()
    assert plan.labels("model_annealing_tuned") == dict.fromkeys((64, 512), "model_annealing_tuned@64"), "equal values"
    assert plan.labels("model_annealing_tuned", "seconds") == dict.fromkeys((0.02, 0.1), "model_annealing_tuned@0.1 s")
    within = found.regret_within("markov_tuned", [0.001, 0.05])  # by the least number of seconds that is not below
    for number, (variant, at) in enumerate((("markov_tuned@0.02 s", 0.001), ("markov_tuned@0.1 s", 0.05))):
        assert within[..., [number]].tolist() == found._best(variant, np.full((3, 2, 1), at), 2).tolist()
    few = found.regret("model_annealing_tuned", [600])  # begun with one seed, which is paired with both policies
    assert few[:, 0].tolist() == few[:, 1].tolist() and several[:, 0].tolist() != several[:, 1].tolist()
    per_task = np.broadcast_to(np.array([[[5.0]], [[10.0]], [[600.0]]]), (3, 2, 1))
    assert found.regret("greedy", per_task)[1, 0, 0] == several[1, 0, 1]


def _study(plan: Plan) -> Regrets:
    texts = [str(op) for op in plan.operators]
    known, _ = optima(texts, "h200", "gensor", plan.output, 1)
    trained = {p.name: policies.train_missing(p.folder, plan.seeds, "h200", "gensor", {}, 1) for p in plan.policies}
    rows = {row["key"]: row for row in read_rows(plan.output / "lines.jsonl")}
    wanted = searches(plan, texts, trained)
    return Regrets(plan, [task_of(op, known[str(op)]) for op in plan.operators], [rows[s.key] for s in wanted], trained)


def test_a_program_below_the_optimum_is_an_error(plan: Plan, summary: dict) -> None:
    found = _study(plan)
    found.grid("greedy")[0][0]["curve"][1][-1] *= 0.5
    with pytest.raises(ValueError, match="faster than its certified optimum"):
        found.regret("greedy", [600])


def test_break_even_counts_operators_against_the_first_that_is_as_good() -> None:
    places, never = np.array([10.0, 100.0, 1000.0]), np.array([False, False, False])
    two = {"late": np.array([False, False, True]), "soon": np.array([False, True, True]), "never": never}
    sooner = generalise_costs._even(40.0, places, two, 6000.0)
    assert sooner == {"ours": 40.0, "theirs": 100.0, "who": "soon", "training": 6000.0, "operators": 100.0}
    beyond = generalise_costs._even(4000.0, places, {"never": never}, 6000.0)
    dearer = generalise_costs._even(400.0, places, two, 6000.0)
    assert beyond["operators"] is None and beyond["who"] is None and dearer["operators"] is None
    found = {"regret": 0.1, "evaluations": beyond, "seconds": dearer}
    rows = {line.split(" | ")[0]: line for line in generalise_report._break_even(found)}
    assert rows["| evaluations"].endswith("| not known |")  # nobody was as good within the study
    assert rows["| seconds"].endswith("| never |") and "(`soon`)" in rows["| seconds"]
    paid = generalise_report._break_even({**found, "seconds": sooner})
    assert any("| at least 100 |" in line for line in paid)  # training counted too low: a lower bound


def test_a_search_goes_on_until_both_are_spent_and_begins_again() -> None:
    """A descent of this operator takes some hundred evaluations; ones that end are begun again, the proof is not."""
    search = Search("x", "greedy", {}, GEMM, "h200", "gensor", 0, 100, 0.05)
    row = run_search(search)
    assert row["evaluated"] > 100 and 0.05 <= row["elapsed_s"] < 5.0
    many = run_search(dataclasses.replace(search, evaluations=5000, seconds=1e-4))
    assert many["evaluated"] >= 5000
    proof = run_search(Search("x", "certifier", {}, GEMM, "h200", "gensor", 0, 10**9, 60.0))
    optimum = certify(ConstructionGraph(GEMM, "h200", "gensor")).optimum
    assert proof["curve"][1][-1] == optimum and proof["elapsed_s"] < 30.0


def test_lines_that_ship_are_not_made_again(plan: Plan, summary: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gzip.open(tmp_path / "lines.jsonl.gz", "wb") as packed:
        packed.write((plan.output / "lines.jsonl").read_bytes())
    monkeypatch.setattr("experiments.studies.study.run_missing", lambda *_: pytest.fail("a search was made"))
    _, again = Generalisation(dataclasses.replace(plan, output=tmp_path))(Console(quiet=True))
    assert again["strategies"] == summary["strategies"] and again["date"] == summary["date"]


def test_groups_are_classes_and_thirds() -> None:
    optimum = certify(ConstructionGraph(GEMM, "h200", "gensor"))
    tasks = [
        dataclasses.replace(task_of(operators.parse(GEMM), optimum), operator=operators.parse(text))
        for text in (GEMM, "gemm(m=64, n=64, k=64)", DEPTHWISE)
    ]
    found = groups_of(tasks)
    assert found["gemm"].tolist() == [True, True, False]
    assert found["depthwise_conv2d (class held out)"].tolist() == [False, False, True]
    assert found["classes seen in training"].tolist() == [True, True, False]
    assert found["smaller third"].tolist() == [True, False, False] and found["larger third"].tolist() == [False, True, False]


def test_crossed_seeds_stay_together() -> None:
    """Where the seeds alone differ, their interval does not shrink with the number of tasks."""
    score = np.broadcast_to(np.arange(4.0), (50, 4))[..., None]
    nested, crossed = (statistics.bootstrap(np.mean, score, resamples=300, crossed=c) for c in (False, True))
    assert nested[1] - nested[0] < 0.5 < 1.5 < crossed[1] - crossed[0]
    line = paired.against({"a": score + 1.0}, score, 100, crossed=True)["a"][0]
    assert line["mean"] == line["low"] == line["high"] == 1.0


def test_configurations_that_make_no_study_are_refused(tmp_path: Path) -> None:
    def refused(*overrides: str) -> None:
        plan_of(compose(["operators=['gemm(m=4, n=16, k=4)']", *overrides], name="generalise"))

    with pytest.raises(ValueError, match="reference 'nobody'"):
        refused("reference=nobody")
    with pytest.raises(ValueError, match="strategies.nearest.seeds is 0"):
        refused("reference=markov", "strategies.nearest.seeds=0")
    with pytest.raises(ValueError, match="seeds 3"):
        refused("reference=markov", "seeds=3")
    with pytest.raises(ValueError, match="evaluations is 0"):
        refused("reference=markov", "evaluations=0")
    with pytest.raises(ValueError, match="expected a strategy with a checkpoint"):
        refused("reference=markov", "policies.columns.of=markov")
    with pytest.raises(ValueError, match="best_of None: expected a number of episodes"):
        refused("reference=markov", "policies.columns.best_of=null")
    with pytest.raises(ValueError, match="expected folder in it"):
        refused("reference=markov", "policies.columns.folder=null")
    with pytest.raises(ValueError, match="expected of in it"):
        refused("reference=markov", "~policies.columns.of")
    with pytest.raises(ValueError, match="no such file"):
        plan_of(compose([f"strategies.model_annealing_tuned.tuned={tmp_path}/none.json"], name="generalise"))
    with pytest.raises(ValueError, match="expected {seed}"):
        policies.folder_of("somewhere", 0, "h200")


def test_a_policy_of_something_else_is_refused(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="asked for are"):
        policies.train_missing(plan.policies[1].folder, [0], "a100", "gensor", {}, 1)
    make_policy(tmp_path / "p0", 0)
    card = json.loads((tmp_path / "p0" / "card.json").read_text())
    with pytest.raises(ValueError, match="trained with {'agent': 'ppo', 'steps': None}, asked for are .*'steps': 100"):
        policies.train_missing(str(tmp_path / "p{seed}"), [0], "h200", "gensor", {"agent": "a2c", "steps": 100, "seed": 0}, 1)
    (tmp_path / "p0" / "card.json").write_text(json.dumps({**card, "operators": "split/v1/test"}))
    with pytest.raises(ValueError, match="expected operators of the train part"):
        policies.train_missing(str(tmp_path / "p{seed}"), [0], "h200", "gensor", {}, 1)


def test_training_is_told_what_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = policies.command_of(tmp_path, 3, "a100", "gensor", {"agent": "ppo", "steps": 100})
    assert command[1:3] == ["-m", "experiments.train"]
    assert {"agent=ppo", "steps=100", "seed=3", f"output={tmp_path}", "env.hardware=a100", "env.space=gensor"} <= set(command)
    fails = [sys.executable, "-c", "raise SystemExit('it is so')"]
    monkeypatch.setattr(policies, "command_of", lambda folder, *_: [*fails, f"output={folder}"])
    with pytest.raises(RuntimeError, match="failed: it is so"):
        policies.train_missing(str(tmp_path / "q{seed}"), [0], "h200", "gensor", {}, 1)


def test_curves_keep_improvements_alone() -> None:
    curve = Curve()
    for at, latency in enumerate([3.0, math.inf, 4.0, 2.0, 2.0], 1):
        curve.add(at, latency, at / 10)
    assert curve.evaluations == [1, 4] and curve.latencies == [3.0, 2.0] and curve.elapsed == [0.1, 0.4]


def test_values_for_evaluations_come_from_train_and_validation(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="train and validation only"):
        tune_evaluations.tasks_of("test", 3)
    assert {operators.part_of(operators.parse(t)) for t in tune_evaluations.tasks_of("validation", 5)} == {"validation"}
    row = {"curve": [[1, 10], [4.0, 2.0], [0.0, 0.0]]}
    assert tune_evaluations.best_at(row, np.array([5, 10, 99])).tolist() == [4.0, 2.0, 2.0]
    scores = np.array([[3.0, 1.0], [1.0, 3.0], [2.0, 2.0]])
    assert tune_evaluations.leading([{"a": 0}, {"a": 1}, {"a": 2}], scores, 1) == [{"a": 1}, {"a": 0}]


def test_more_settings_than_there_are_is_an_error() -> None:
    config = OmegaConf.create({"choices": {"walkers": [1, 2], "steps": [16, 16]}, "rungs": [{"settings": 3}]})
    with pytest.raises(ValueError, match="expected at most the 2 that"):
        distinct(config, np.random.default_rng(0))
