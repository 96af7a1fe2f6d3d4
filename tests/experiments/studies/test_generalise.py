"""The study of policies on new operators: its lines, its statistics, and what it refuses."""

from __future__ import annotations

import dataclasses
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from agents.cli.arguments import compose
from agents.runs.journal import read_rows
from experiments.common import statistics
from experiments.studies import scores
from experiments.studies.generalise import plan as planned
from experiments.studies.generalise import plan as plans
from experiments.studies.generalise import scores as generalise_summary
from experiments.studies.generalise import study as generalise_report
from experiments.studies.generalise.plan import Contender, GeneralisePlan, Trained, modelled, plan_of, searches, searches_of
from experiments.studies.generalise.scores import Regrets, Task, optima
from experiments.studies.generalise.study import Generalisation
from experiments.studies.scores import EVALUATIONS, SECONDS
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact import certify
from tests.support.coarse_figures import COARSE_FIGURES
from tests.support.in_process import search_here, warm_little
from tests.support.policies_made import DEPTHWISE, GEMM, GEMV, SMALL_WALKS, make_columns, make_policy

pytestmark = COARSE_FIGURES

@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> GeneralisePlan:
    folder = tmp_path_factory.mktemp("generalise")
    for seed in (0, 1):
        make_policy(folder / f"p{seed}", seed)
        make_columns(folder / f"c{seed}", seed)
    tuned = folder / "tuned.json"
    values = {"64": {**SMALL_WALKS, "walkers": 1}, "512": SMALL_WALKS}
    within = {"0.005": SMALL_WALKS, "0.02": values["64"]}
    tuned.write_text(json.dumps({"strategy": "markov", "values": values, "values_within": within}))
    same = folder / "same.json"
    two = {"values": dict.fromkeys(("64", "512"), {"chains": 2}), "values_within": dict.fromkeys(within, {"chains": 2})}
    same.write_text(json.dumps({"strategy": "model_annealing", **two}))
    return plan_of(
        compose(
            [
                f"operators=['{GEMM}','{GEMV}','{DEPTHWISE}','elementwise(name=\"exp\", shape=(8, 8))']", "seeds=[0,1]",
                "evaluations=600", "checkpoints=[64,512]", "seconds=[0.005,0.02]",
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
def summary(plan: GeneralisePlan) -> dict:
    with pytest.MonkeyPatch.context() as patch:
        search_here(patch)
        warm_little(patch)
        return Generalisation(plan)(Console(quiet=True))[1]


@pytest.mark.thorough
def test_the_study_is_whole(plan: GeneralisePlan, summary: dict) -> None:
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


def test_a_search_has_the_episodes_asked_for_and_one_round_those_compared(plan: GeneralisePlan, tmp_path: Path) -> None:
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


@pytest.mark.thorough
def test_what_is_done_is_not_done_again(plan: GeneralisePlan, summary: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plan.output / "lines.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"torn')  # a write that a kill interrupted
    made: list = []
    monkeypatch.setattr("agents.runs.lines.side_by_side", lambda work, left, processes: made.extend(left) or [])
    _, again = Generalisation(_changed(plan, figures=False))(Console(quiet=True))
    assert made == [] and path.read_bytes() == whole
    assert again["policies"] == summary["policies"] and again["strategies"] == summary["strategies"]


@pytest.mark.thorough
def test_tuned_values_are_those_of_the_nearest_number(plan: GeneralisePlan, summary: dict) -> None:
    found = _study(plan)
    for count, variant in ((100, "markov_tuned@64"), (400, "markov_tuned@512")):
        at = np.full((3, 2, 1), float(count))
        assert found.regret("markov_tuned", [count]).tolist() == found.best(variant, at, EVALUATIONS).tolist()
    several = found.regret("greedy", [1, 10, 600])
    assert (np.diff(several, axis=2) <= 0).all() and (several >= 0).all()
    assert plan.labels("model_annealing_tuned") == dict.fromkeys((64, 512), "model_annealing_tuned@64"), "equal values"
    assert plan.labels("model_annealing_tuned", "seconds") == dict.fromkeys((0.005, 0.02), "model_annealing_tuned@0.02 s")
    within = found.regret_within("markov_tuned", [0.001, 0.01])  # by the least number of seconds that is not below
    for number, (variant, at) in enumerate((("markov_tuned@0.005 s", 0.001), ("markov_tuned@0.02 s", 0.01))):
        assert within[..., [number]].tolist() == found.best(variant, [at], SECONDS).tolist()
    few = found.regret("model_annealing_tuned", [600])  # begun with one seed, which is paired with both policies
    assert few[:, 0].tolist() == few[:, 1].tolist() and several[:, 0].tolist() != several[:, 1].tolist()
    per_task = np.broadcast_to(np.array([[[5.0]], [[10.0]], [[600.0]]]), (3, 2, 1))
    assert found.regret("greedy", per_task)[1, 0, 0] == several[1, 0, 1]


def _changed(plan: GeneralisePlan, **entries: Any) -> GeneralisePlan:
    return dataclasses.replace(plan, config={**plan.config, **entries})


def _study(plan: GeneralisePlan) -> Regrets:
    texts = [str(op) for op in plan.operators]
    known, _ = optima(plan.operators, "h200", "gensor", plan.output, 1)
    trained = {p.name: plans.train_missing(p.folder, plan.seeds, "h200", "gensor", {}, 1) for p in plan.policies}
    rows = {row["key"]: row for row in read_rows(plan.output / "lines.jsonl")}
    wanted = searches(plan, texts, trained)
    return Regrets(plan, [Task(op, known[str(op)]) for op in plan.operators], [rows[s.key] for s in wanted], trained)


@pytest.mark.thorough
def test_a_program_below_the_optimum_is_an_error(plan: GeneralisePlan, summary: dict) -> None:
    found = _study(plan)
    found.grid("greedy")[0][0]["curve"][1][-1] *= 0.5
    with pytest.raises(ValueError, match="faster than its certified optimum"):
        found.regret("greedy", [600])


@pytest.mark.thorough
def test_lines_that_ship_are_not_made_again(
    plan: GeneralisePlan, summary: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gzip.open(tmp_path / "lines.jsonl.gz", "wb") as packed:
        packed.write((plan.output / "lines.jsonl").read_bytes())
    monkeypatch.setattr("experiments.studies.study.run_missing", lambda *_: pytest.fail("a search was made"))
    _, again = Generalisation(_changed(plan, output=str(tmp_path), figures=False))(Console(quiet=True))
    assert again["strategies"] == summary["strategies"] and again["date"] == summary["date"]


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
        plans.folder_of("somewhere", 0, "h200")


def test_a_policy_of_something_else_is_refused(tmp_path: Path) -> None:
    make_policy(tmp_path / "p0", 0)
    with pytest.raises(ValueError, match="asked for are"):
        planned.train_missing(str(tmp_path / "p{seed}"), [0], "a100", "gensor", {}, 1)
    card = json.loads((tmp_path / "p0" / "card.json").read_text())
    with pytest.raises(ValueError, match="trained with {'agent': 'ppo', 'steps': None}, asked for are .*'steps': 100"):
        planned.train_missing(str(tmp_path / "p{seed}"), [0], "h200", "gensor", {"agent": "a2c", "steps": 100, "seed": 0}, 1)
    (tmp_path / "p0" / "card.json").write_text(json.dumps({**card, "operators": "split/v1/test"}))
    with pytest.raises(ValueError, match="expected operators of the train part"):
        planned.train_missing(str(tmp_path / "p{seed}"), [0], "h200", "gensor", {}, 1)


def test_training_is_told_what_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = planned.command_of(tmp_path, 3, "a100", "gensor", {"agent": "ppo", "steps": 100})
    assert command[1:4] == ["-m", "experiments", "train"]
    assert {"agent=ppo", "steps=100", "seed=3", f"output={tmp_path}", "env.hardware=a100", "env.space=gensor"} <= set(command)
    fails = [sys.executable, "-c", "raise SystemExit('it is so')"]
    monkeypatch.setattr(planned, "command_of", lambda folder, *_: [*fails, f"output={folder}"])
    with pytest.raises(RuntimeError, match="failed: it is so"):
        planned.train_missing(str(tmp_path / "q{seed}"), [0], "h200", "gensor", {}, 1)


def test_the_difference_of_interquartile_means_is_paired() -> None:
    """What all scores have in common does not widen the interval, however far they lie apart."""
    theirs = np.random.default_rng(0).exponential(1.0, size=(12, 5, 1))
    assert scores.iqm_difference(theirs - 0.5, theirs, 200) == pytest.approx({"mean": -0.5, "low": -0.5, "high": -0.5})
    shuffled = theirs[::-1] - 0.5
    assert scores.iqm_difference(shuffled, theirs, 200)["high"] > -0.4


def test_break_even_counts_operators_against_the_first_that_is_as_good() -> None:
    places, never = np.array([10.0, 100.0, 1000.0]), np.array([False, False, False])
    two = {"late": np.array([False, False, True]), "soon": np.array([False, True, True]), "never": never}
    sooner = generalise_summary._even(40.0, places, two, 6000.0)
    assert sooner == {"ours": 40.0, "theirs": 100.0, "who": "soon", "training": 6000.0, "operators": 100.0}
    beyond = generalise_summary._even(4000.0, places, {"never": never}, 6000.0)
    dearer = generalise_summary._even(400.0, places, two, 6000.0)
    assert beyond["operators"] is None and beyond["who"] is None and dearer["operators"] is None
    found = {"regret": 0.1, "evaluations": beyond, "seconds": dearer}
    rows = {line.split(" | ")[0]: line for line in generalise_report.break_even(found)}
    assert rows["| evaluations"].endswith("| not known |")  # nobody was as good within the study
    assert rows["| seconds"].endswith("| never |") and "(`soon`)" in rows["| seconds"]
    paid = generalise_report.break_even({**found, "seconds": sooner})
    assert any("| at least 100 |" in line for line in paid)  # training counted too low: a lower bound


def test_groups_are_classes_and_thirds() -> None:
    optimum = certify(ConstructionGraph(GEMM, "h200", "gensor"))
    tasks = [Task(operators.parse(text), optimum) for text in (GEMM, "gemm(m=64, n=64, k=64)", DEPTHWISE)]
    found = generalise_summary.groups_of(tasks)
    assert found["gemm"].tolist() == [True, True, False]
    assert found["depthwise_conv2d (class held out)"].tolist() == [False, False, True]
    assert found["classes seen in training"].tolist() == [True, True, False]
    assert found["smaller third"].tolist() == [True, False, False] and found["larger third"].tolist() == [False, True, False]


def test_crossed_seeds_stay_together() -> None:
    """Where the seeds alone differ, their interval does not shrink with the number of tasks."""
    score = np.broadcast_to(np.arange(4.0), (50, 4))[..., None]
    nested, crossed = (statistics.bootstrap(np.mean, score, resamples=300, crossed=c) for c in (False, True))
    assert nested[1] - nested[0] < 0.5 < 1.5 < crossed[1] - crossed[0]
    line = statistics.against({"a": score + 1.0}, score, 100, crossed=True)["a"][0]
    assert line["mean"] == line["low"] == line["high"] == 1.0
