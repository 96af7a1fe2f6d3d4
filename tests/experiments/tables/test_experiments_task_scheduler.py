"""The table of Ansor's task scheduler on several networks: curves of searches, and searches of a tiny network."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from agents.ansor.task_scheduler import Progress, RoundRobin, total_latency
from experiments.benches.tuning import scheduled
from experiments.benches.tuning.scheduled import RULES, Limited, raced, searched
from experiments.tables.task_scheduler import curve


def test_time_of_networks_over_trials() -> None:
    """A network has a time once each of its tasks has run; a slower trial changes nothing, and the last time is kept."""
    row = {"counts": [[2, 1], [0, 3]], "trials": [[0.1, 1, 5.0], [0.2, 0, 1.0], [0.3, 1, 9.0], [0.4, 1, 4.0]]}
    expected = [[math.inf, 7, 7, 6, 6], [15, 15, 15, 12, 12]]
    assert np.array_equal(curve(row, 5), expected) and np.array_equal(curve(row, 2), np.array(expected)[:, :2])


def test_trials_of_all_tasks_are_limited() -> None:
    tasks = [Progress(1.0, "gemm"), Progress(1.0, "gemm")]
    rule = Limited(RoundRobin(total_latency(np.ones(2))), 3)
    order = []
    while (chosen := rule.choose(tasks, np.random.default_rng(0))) is not None:
        tasks[chosen].record(1.0, 2, None)
        order.append(chosen)
    assert order == [0, 1]


@pytest.mark.thorough
@pytest.mark.parametrize("rule", RULES)
def test_a_search_and_its_race(rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rule gives each task of a small network its trials, and the network of its kernels is right."""
    monkeypatch.setattr(scheduled, "NETWORKS", ("mlp_1",))
    found = searched(rule, 0, 8, str(tmp_path / "store"))
    tasks = [task for _, task, _ in found["trials"]]
    assert set(tasks) == set(range(len(found["counts"][0]))) and 8 <= len(tasks) <= 10
    assert all(0 < seconds < math.inf for *_, seconds in found["trials"])
    assert len(raced([str(tmp_path / "store")], 2)["mlp_1"][0]) == 2
