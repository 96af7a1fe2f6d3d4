"""Legality in plain Python, for a process that asks once: the verdicts of the compiled rules, and none of these is loaded."""

from __future__ import annotations

from types import FunctionType

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

from gensor_gym import ConstructionGraph, Schedule
from gensor_gym.graph import rules
from gensor_gym.graph.compiling.plain import over_lists

TASKS = (("gemm(m=96, n=64, k=80)", "host"), ("conv2d(n=1, c=8, h=9, w=9, k=16, r=3, s=3)", "h200"))


def rows(graph: ConstructionGraph) -> list[np.ndarray]:
    """Legal rows, and the same with one number put out of place."""
    rng = np.random.default_rng(0)
    legal = [graph.random_schedule(rng).row for _ in range(12)]
    changed = [row.copy() for row in legal for _ in range(4)]
    for row in changed:
        row[rng.integers(len(row))] = rng.choice([0, -1, 2, 7, 64, 1 << 20, np.iinfo(np.int32).max])
    return legal + changed


@pytest.mark.parametrize(("operator", "machine"), TASKS)
def test_the_verdicts_are_the_same(operator: str, machine: str) -> None:
    graph = ConstructionGraph(operator, machine, "extended")
    schedules = [Schedule(row) for row in rows(graph)]
    verdicts = [graph.is_legal(schedule) for schedule in schedules]
    assert [graph.is_legal_once(schedule) for schedule in schedules] == verdicts
    assert verdicts.count(True) >= 12 and verdicts.count(False) >= 12


def test_no_compiled_rule_is_left_in_the_plain_ones() -> None:
    for rule in (rules.fits, rules.is_well_formed):
        waiting, seen = [over_lists(rule)], set()
        while waiting:
            plain = waiting.pop()
            assert not isinstance(plain, Dispatcher)
            used = [plain.__globals__.get(name) for name in plain.__code__.co_names]
            waiting += [value for value in used if isinstance(value, (Dispatcher, FunctionType)) and id(value) not in seen]
            seen.update(map(id, used))
        assert len(seen) > 3
