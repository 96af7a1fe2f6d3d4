"""Searches by the model alone, each until its evaluations are spent, as curves: the best so far after every evaluation.

A strategy is begun again as often as the evaluations last: what its `construct` does is a round. Nothing is carried over but the
curve. A policy's rounds have 1, 2, 4, .. and then always as many episodes as its setting says, so that its curve begins early.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np

from agents import get_strategy
from agents.baselines.beam import Beam
from agents.baselines.random_walk import RandomWalk
from agents.core.ranking import Construction
from agents.core.watched import WatchedGraph
from agents.policies.learned import POLICY
from agents.strategy import CONSTRUCTIONS, strategies_for
from experiments.common.settings import code_digest, digest_of_file, short_hash
from gensor_gym import operators
from gensor_gym.fingerprint import fingerprints
from gensor_gym.measure.session import BudgetSpent

DRAWN = 64
"""Random walks that are drawn at a time."""
WARM_UP, WARM_UP_EVALUATIONS = "gemm(m=16, n=16, k=16)", 5000


@dataclass(frozen=True)
class Search:
    """One search: a strategy of the registry on one task, with a seed, until its evaluations are spent."""

    strategy: str
    """Its name in the study."""
    of: str
    """Its name in the registry."""
    parameters: Mapping[str, Any]
    operator: str
    hardware: str
    space: str
    seed: int
    evaluations: int
    once: bool = False
    """Whether it ends with its first round."""
    policy: str = ""
    """Digest of the policy in the folder `parameters["checkpoint"]`."""

    @property
    def config(self) -> dict[str, Any]:
        """Everything the outcome depends on, values at their default too; of a policy what it is and not where it lies."""
        (found,) = fingerprints([operators.parse(self.operator)], self.hardware, self.space).values()
        plain = {**asdict(self), "fingerprint": found}
        strategy: Any = get_strategy(self.of, **self.parameters)
        apart = {"space", "checkpoint"} if self.policy else {"space"}
        return {**plain, "parameters": {name: value for name, value in asdict(strategy).items() if name not in apart}}

    @property
    def key(self) -> str:
        """Sixteen digits that name the search."""
        return short_hash(self.config)


def run_search(search: Search) -> dict[str, Any]:
    """The line of a search: configuration, curve, what its first round came to, evaluations and wall seconds.

    Loading and compiling come before the clock starts.
    """
    _warm(search.of, tuple(sorted(search.parameters.items())), search.hardware, search.space)
    graph = WatchedGraph(search.operator, search.hardware, search.space, search.evaluations)
    first = spend(search, graph, np.random.default_rng(search.seed))
    curve = graph.curve
    return {
        "key": search.key, **search.config, "code": code_digest(), "evaluated": graph.evaluations,
        "elapsed_s": graph.elapsed, "first": first,
        "curve": [curve.evaluations, curve.latencies, [round(t, 6) for t in curve.elapsed]],
    }  # fmt: skip


def spend(search: Search, graph: WatchedGraph, rng: np.random.Generator) -> dict[str, float | None]:
    """Search until the graph's evaluations are spent, or for one round.

    Returns evaluations, latency (None where there is none yet) and wall seconds at the end of the first round, or of the search
    where it ends within that.
    """
    graph.start()
    strategy: Any = get_strategy(search.of, **{**search.parameters, "space": graph.space})
    first: dict[str, float | None] = {}
    try:
        for found in rounds(strategy, graph, rng, search.once):
            if found.latencies:
                graph.note(found.latencies[0])
            first = first or _mark(graph)
            if search.once:
                break
    except BudgetSpent:
        pass
    return first or _mark(graph)


def _mark(graph: WatchedGraph) -> dict[str, float | None]:
    """Where a search is."""
    latencies = graph.curve.latencies
    return {
        "evaluations": graph.evaluations, "elapsed_s": round(graph.elapsed, 6),
        "latency": latencies[-1] if latencies else None,
    }  # fmt: skip


def rounds(strategy: Any, graph: WatchedGraph, rng: np.random.Generator, once: bool) -> Iterator[Construction]:
    """Constructions without end, of a policy with growing numbers of episodes unless `once` is asked.

    ValueError for a strategy that does not construct by the model alone.
    """
    if isinstance(strategy, Beam):
        for start in chain([graph.initial()], (graph.random_schedule(rng) for _ in repeat(None))):
            yield strategy.grow(graph, start)
    elif isinstance(strategy, RandomWalk):
        for _ in repeat(None):
            graph.latencies(graph.stack([graph.random_schedule(rng) for _ in range(DRAWN)]))
    elif hasattr(strategy, "rounds") and hasattr(strategy, "construct") and not (once and hasattr(strategy, "episodes")):
        yield from strategy.rounds(graph, rng)
    elif hasattr(strategy, "episodes") and not once:
        for turn in chain(range(strategy.episodes.bit_length()), repeat(None)):
            episodes = strategy.episodes if turn is None else min(2**turn, strategy.episodes)
            yield dataclasses.replace(strategy, episodes=episodes).construct(graph, rng)
    elif hasattr(strategy, "construct"):
        for _ in repeat(None):
            yield strategy.construct(graph, rng)
    else:
        raise ValueError(f"{type(strategy).__name__} does not construct by the model alone; of the registry {constructing()} do")


def constructing() -> list[str]:
    """Strategies of the registry that search by the model alone."""
    return [name for name in strategies_for(CONSTRUCTIONS) if hasattr(get_strategy(name), "construct") or name == "random_walk"]


def digest_of_policy(folder: Path) -> str:
    """Sixteen digits of a policy's weights; FileNotFoundError where there are none."""
    return digest_of_file(folder / POLICY)


@cache
def _warm(of: str, parameters: tuple[tuple[str, Any], ...], hardware: str, space: str) -> None:
    """Load and compile what a search needs, once in a process."""
    search = Search("", of, dict(parameters), WARM_UP, hardware, space, 0, WARM_UP_EVALUATIONS, once=True)
    spend(search, WatchedGraph(WARM_UP, hardware, space, search.evaluations), np.random.default_rng(0))
