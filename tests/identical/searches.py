"""What every registered strategy finds on a small task of the model, or on a small recorded space; and certified optima."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agents import optimize, tune
from agents.strategy import CONSTRUCTIONS, RECORDED, strategies_for
from gensor_gym import ConstructionGraph
from gensor_gym.exact import certify
from gensor_gym.measure.session import TraceRow
from tests.identical.digests import of, six
from tests.support.tuning_files import CACHE

TASKS = (("gemm(m=64, n=48, k=40)", "h200"), ("reduce_sum(m=64, k=400)", "cascade_lake"))
TRIALS = 6
_WALKS = {"walkers": 2, "steps": 6, "refiners": 1, "refine_steps": 3, "descents": 1}
SMALLER: dict[str, dict[str, Any]] = {
    "markov": _WALKS,
    "markov_ext": {**_WALKS, "columns": 1},
    "markov_annealing": {**_WALKS, "chains": 2, "chain_steps": 3},
    "mcts": {"simulations": 20, "walk": 5, "climb": 2},
    "exhaustive": {"space": "compact"},
    "welder": {"limit": 40},
}
"""Arguments that keep a search short."""
OF_SPACES: dict[str, dict[str, Any]] = {"elsewhere": {"spaces": (str(CACHE),)}}
NEEDS_A_POLICY = ("a2c", "dqn", "qrdqn", "policy", "adapted", "in_turn")
"""Strategies that no policy ships for, and those for machines that `gensor adapt` measured.

`tests/agents/test_agents_learners.py`, `tests/spaces/test_recorded_policies.py` and `tests/agents/recording/test_record.py` train
some."""
CERTIFIED = (("gemm(m=64, n=48, k=40)", "h200", "gensor"), ("gemv(m=100, k=333)", "h200", "gensor"),
             ("reduce_sum(m=64, k=400)", "cascade_lake", "gensor"))  # fmt: skip


SEARCHED = tuple(name for name in strategies_for(CONSTRUCTIONS) if name not in NEEDS_A_POLICY)


def searches(names: Iterable[str] = SEARCHED, tasks: int = 1) -> dict[str, str]:
    """Traces of strategies on the first so many tasks."""
    digests = {}
    for operator, machine in TASKS[:tasks]:
        for name in names:
            found = optimize(operator, machine, name, TRIALS, 5, "analytic", **SMALLER.get(name, {}))
            digests[f"{name} on {operator} {machine}"] = _trace(found.trace)
    return digests


def of_spaces() -> dict[str, str]:
    """Traces of the strategies of recorded spaces."""
    names = [name for name in strategies_for(RECORDED) if name not in NEEDS_A_POLICY]
    return {name: _trace(tune(CACHE, name, 8, seed=5, **OF_SPACES.get(name, {})).trace) for name in names}


def optima() -> dict[str, str]:
    """Certificates made anew, without what they took."""
    digests = {}
    for operator, machine, space in CERTIFIED:
        found = certify(ConstructionGraph(operator, machine, space))
        seconds = [six(found.optimum), six(float.fromhex(found.bound))]
        digests[f"{operator} {machine} {space}"] = of([found.method, found.schedule, found.optima, found.candidates, seconds])
    return digests


def _trace(trace: Iterable[TraceRow]) -> str:
    """Schedules in the order of their trials, with their seconds and status."""
    return of([[row.schedule, six(row.seconds), row.status] for row in trace])
