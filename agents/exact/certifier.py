"""The proof of an optimum as a search: descents first, then a complete enumeration or branch and bound."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from agents.core.ranking import Construction
from agents.hybrids.model_search import ModelSearch
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact.optimum import MOST_NODES, certify


@dataclass(frozen=True)
class Certifier(ModelSearch):
    """Prove the optimum on the analytic model (`gensor_gym.exact`) and measure its program. The search is deterministic."""

    nodes: int = MOST_NODES
    """Number of block tiles after which the proof is given up."""
    exhaustive: ClassVar[bool] = True

    def rounds(self, graph: ConstructionGraph, rng: np.random.Generator) -> Iterator[Construction]:
        """Yield one construction, of the optimum. ValueError if no proof applies to the task, or if the proof is given up."""
        begin, before = time.perf_counter(), graph.evaluations
        found = certify(graph, most_nodes=self.nodes)
        made = graph.evaluations - before
        yield Construction((found.best,), (found.optimum,), found.visited, made, time.perf_counter() - begin)
