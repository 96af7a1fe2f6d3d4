"""The proof of an optimum as a search: descents first, then enumeration or branch and bound to its end."""

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
    """The proof of the optimum (`gensor_gym.exact`): its program is the fastest there is, and nothing is random."""

    nodes: int = MOST_NODES
    """Block tiles after which it gives up."""
    exhaustive: ClassVar[bool] = True

    def rounds(self, graph: ConstructionGraph, rng: np.random.Generator) -> Iterator[Construction]:
        """One construction. ValueError for a task without a method of proof, or if it gives up."""
        begin, before = time.perf_counter(), graph.evaluations
        found = certify(graph, most_nodes=self.nodes)
        made = graph.evaluations - before
        yield Construction((found.best,), (found.optimum,), found.visited, made, time.perf_counter() - begin)
