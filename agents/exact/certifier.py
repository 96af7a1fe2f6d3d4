"""Prove an optimum as a search: run descents first, then a complete enumeration or branch and bound."""

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
    """Prove the optimum of the analytic model (`gensor_gym.exact`) and measure the optimal program. It is deterministic."""

    nodes: int = MOST_NODES
    """Number of block tiles that the proof may visit before it is given up."""
    exhaustive: ClassVar[bool] = True

    def rounds(self, graph: ConstructionGraph, rng: np.random.Generator) -> Iterator[Construction]:
        """Yield a single ranking, which consists of the proved optimum.

        ValueError if no proof applies to the task, or if the proof is given up.
        """
        begin, before = time.perf_counter(), graph.evaluations
        found = certify(graph, most_nodes=self.nodes)
        made = graph.evaluations - before
        yield Construction((found.best,), (found.optimum,), found.visited, made, time.perf_counter() - begin)
