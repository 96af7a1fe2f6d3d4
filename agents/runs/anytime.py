"""Anytime curves of searches by the model alone: the best latency after every evaluation, until a budget is spent.

A strategy constructs rankings (`agents.strategy.Constructs`) while the budget lasts; each one is a round. A strategy that ends
sooner is started again, unless it has constructed everything that it can. Only the curve is carried over.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from agents import get_strategy
from agents.core.watched import WatchedGraph
from agents.learners.stored import POLICY
from agents.runs.settings import code_digest, digest_of_file, short_hash
from agents.strategy import CONSTRUCTIONS, Constructs, strategies_for
from gensor_gym import operators
from gensor_gym.fingerprint import fingerprints
from gensor_gym.measure.session import BudgetSpent

WARM_UP, WARM_UP_EVALUATIONS = ("gemm(m=16, n=16, k=16)", "gemm(m=128, n=128, k=128)"), 5000
"""Operators that a process searches first to compile its code, and the budget of evaluations for each.

The exact search enumerates one of them and uses bounds for the other.
"""


@dataclass(frozen=True)
class Search:
    """One search of a study: a strategy on one task with a seed, until its evaluations and its seconds are both spent."""

    strategy: str
    """The strategy's name in the study."""
    of: str
    """The strategy's registered name, from which its code is loaded."""
    parameters: Mapping[str, Any]
    operator: str
    hardware: str
    space: str
    seed: int
    evaluations: int
    seconds: float = 0.0
    """Budget in processor seconds."""
    once: bool = False
    """Whether the search ends with its first round."""
    policy: str = ""
    """Digest of the policy's weights in the folder `parameters["checkpoint"]`; empty without a policy."""

    @property
    def config(self) -> dict[str, Any]:
        """Everything that the outcome depends on, as JSON values, with default hyperparameters.

        A policy counts by its content, not by its path.
        """
        (found,) = fingerprints([operators.parse(self.operator)], self.hardware, self.space).values()
        plain = {**asdict(self), "fingerprint": found}
        strategy: Any = get_strategy(self.of, **self.parameters)
        apart = {"space", "checkpoint"} if self.policy else {"space"}
        return {**plain, "parameters": {name: value for name, value in asdict(strategy).items() if name not in apart}}

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits that identify the search."""
        return short_hash(self.config)


def run_search(search: Search) -> dict[str, Any]:
    """Run a search and return its row: configuration, curve, result of the first ranking, evaluations and processor seconds.

    The code is loaded and compiled before the clock starts.
    """
    _warm(search.of, tuple(sorted(search.parameters.items())), search.hardware, search.space)
    graph = WatchedGraph(search.operator, search.hardware, search.space, search.evaluations, search.seconds)
    first = spend(search, graph, np.random.default_rng(search.seed))
    curve = graph.curve
    return {
        "key": search.key, **search.config, "code": code_digest(), "evaluated": graph.evaluations,
        "elapsed_s": round(graph.elapsed, 6), "first": first, "date": datetime.date.today().isoformat(),
        "curve": [curve.evaluations, curve.latencies, [round(t, 6) for t in curve.elapsed]],
    }  # fmt: skip


def spend(search: Search, graph: WatchedGraph, rng: np.random.Generator) -> dict[str, float | None]:
    """Run the search's strategy until the graph's budget is spent, or for one ranking.

    Return evaluations, latency (None before the first program) and processor seconds at the end of the first ranking, or of the
    search if it ends earlier. ValueError for a strategy that does not construct by the model.
    """
    graph.start()
    strategy: Any = get_strategy(search.of, **{**search.parameters, "space": graph.space})
    if not isinstance(strategy, Constructs):
        name = type(strategy).__name__
        raise ValueError(f"{name} does not construct by the model alone; of the registry {constructing()} do")
    first: dict[str, float | None] = {}
    try:
        before = -1
        while graph.evaluations > before:  # a strategy that ends sooner is started again
            before = graph.evaluations
            for found in strategy.constructions(graph, rng, search.once):
                if found.latencies:
                    graph.note(found.latencies[0])
                first = first or _mark(graph)
                if search.once:
                    break
            if search.once or getattr(strategy, "exhaustive", False):
                break
    except BudgetSpent:
        pass
    return first or _mark(graph)


def _mark(graph: WatchedGraph) -> dict[str, float | None]:
    latencies = graph.curve.latencies
    return {
        "evaluations": graph.evaluations, "elapsed_s": round(graph.elapsed, 6),
        "latency": latencies[-1] if latencies else None,
    }  # fmt: skip


def constructing() -> list[str]:
    """Return the names of the registered strategies that can search by the model alone."""
    return [name for name in strategies_for(CONSTRUCTIONS) if isinstance(get_strategy(name), Constructs)]


def digest_of_policy(folder: Path) -> str:
    """Return sixteen hexadecimal digits that identify a policy's weights. FileNotFoundError if the weights are missing."""
    return digest_of_file(folder / POLICY)


@cache
def _warm(of: str, parameters: tuple[tuple[str, Any], ...], hardware: str, space: str) -> None:
    for operator in WARM_UP:
        search = Search("", of, dict(parameters), operator, hardware, space, 0, WARM_UP_EVALUATIONS)
        graph = WatchedGraph(operator, hardware, space, search.evaluations)
        spend(search, graph, np.random.default_rng(0))
