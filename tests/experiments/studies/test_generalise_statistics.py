"""What the study of generalisation computes of regrets: paired differences, break-even, groups."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.common import statistics
from experiments.studies import scores
from experiments.studies.generalise import scores as generalise_summary
from experiments.studies.generalise import study as generalise_report
from experiments.studies.generalise.scores import Task
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact import certify
from tests.support.policies_made import DEPTHWISE, GEMM


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
