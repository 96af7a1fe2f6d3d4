"""One search of a fused operator with the model, recorded as a curve over evaluations and processor time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from agents.core.watched import WatchedGir
from agents.policies.fused_parts import fused_fingerprints, fused_operators
from agents.runs.settings import code_digest, short_hash
from agents.strategy import FUSED, Constructs, build
from gensor_gym import hardware as machines
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.measure.session import BudgetSpent


@dataclass(frozen=True)
class Search:
    """A registered strategy on one task with a seed."""

    strategy: str
    parameters: Mapping[str, Any]
    operator: str
    hardware: str
    space: str
    seed: int
    seconds: float
    evaluations: int = 0
    """Evaluations of the model in the budget. The search ends when both these and `seconds` of processor time are spent."""
    policy: str = ""
    """Digest of the weights of the policy in `parameters["checkpoint"]`."""

    @property
    def config(self) -> dict[str, Any]:
        """All inputs that determine the outcome."""
        (found,) = fused_fingerprints(fused_operators(self.operator), self.hardware, self.space).values()
        apart = {name: value for name, value in self.parameters.items() if name != "checkpoint"}
        return {**asdict(self), "parameters": apart, "fingerprint": found}

    @property
    def key(self) -> str:
        """Hash of the configuration, sixteen digits."""
        return short_hash(self.config)


class ModelSession:
    """A session for strategies that search by trials. The model answers each trial, and a repeated schedule costs nothing."""

    def __init__(self, graph: GirGraph) -> None:
        self.graph = graph
        self._known: dict[GirSchedule, Any] = {}
        self.best: tuple[GirSchedule, Any] | None = None

    @property
    def trials(self) -> int:
        """Number of different schedules evaluated."""
        return len(self._known)

    def measure(self, schedules: Sequence[GirSchedule]) -> list[Any]:
        """The model's answers for the schedules, in order."""
        for schedule in schedules:
            if schedule not in self._known:
                found = self._known[schedule] = SimpleNamespace(seconds=self.graph.latency(schedule))
                if self.best is None or found.seconds < self.best[1].seconds:
                    self.best = schedule, found
        return [self._known[schedule] for schedule in schedules]


def run_search(search: Search) -> dict[str, Any]:
    """Run a search and return its row. Policies are loaded before the clock starts."""
    strategy: Any = build(search.strategy, FUSED, {**search.parameters, "space": search.space})
    (operator,) = fused_operators(search.operator)
    graph = WatchedGir(operator, machines.get(search.hardware), search.space, search.evaluations, search.seconds)
    if hasattr(strategy, "policy"):
        strategy.policy(graph)
    begun = time.perf_counter()
    graph.start()
    with suppress(BudgetSpent):
        _spend(strategy, graph, np.random.default_rng(search.seed))
    curve = graph.curve
    return {
        "key": search.key, **search.config, "code": code_digest(), "evaluated": graph.evaluations,
        "elapsed_s": round(graph.elapsed, 6), "wall_s": round(time.perf_counter() - begun, 6),
        "curve": [curve.evaluations, curve.latencies, [round(t, 6) for t in curve.elapsed]],
    }  # fmt: skip


def _spend(strategy: Any, graph: WatchedGir, rng: np.random.Generator) -> None:
    """Search until BudgetSpent. A construction that ends earlier is restarted as long as restarts evaluate new programs."""
    if isinstance(strategy, Constructs):
        before = -1
        while graph.evaluations > before:
            before = graph.evaluations
            deque(strategy.constructions(graph, rng), maxlen=0)  # type: ignore[arg-type]
    elif hasattr(strategy, "walk"):
        while True:
            strategy.walk(graph, rng)
    else:
        strategy.search(ModelSession(graph), rng)
