"""Strategy that measures programs of the traverser and of a policy alternately, ranked by a learned model of time.

Each source alone proposes similar programs, so the best of a few is barely faster than the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np

from agents.core.feedback import measure_with_feedback
from agents.core.ranking import Construction
from agents.hybrids.adapted import Adapted
from agents.hybrids.corrected import Corrected
from agents.policies.learned import POLICIES
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.session import Session

DEFAULT = {"cpu": POLICIES / "columns_timed_cpu", "gpu": POLICIES / "columns_extended_gpu"}
"""Kind of machine -> folder of the default policy.

The CPU's policy is seed 0 of the study `arms=wide`, trained on kernel times of one core of a Zen 4 (results/cpu_study/README.md).
The GPU's policy was trained on the analytic model.
"""


@dataclass(frozen=True)
class InTurn(Adapted):
    """Alternate between two `corrected` searches: one with proposer `columns`, one with the traverser's walks and descents.

    `proposer` and its `checkpoint` belong to the policy; `walkers`, `refined` and `descents` are settings of the traverser. The
    machine's model of time is used, as in `adapted`; FileNotFoundError if it is missing.
    """

    proposer: str = "columns"
    turns: int = 4
    """Number of programs that are measured alternately, beginning with the traverser.

    After them, predictions and measurements choose. In the study (results/cpu_study) the policy began. The best of four programs
    does not depend on the order; the traverser's first program was the faster one.
    """

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Measure the first programs of both sources alternately, then all by their predicted times, as `Corrected` does."""
        begun = self._both(session.graph, rng)
        for schedule in islice(_in_turn(begun), self.turns):
            session.measure([schedule])
        waiting = [_merged(begun)]

        def construct(graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
            return waiting.pop() if waiting else self.construct(graph, rng)

        predict = partial(self.predict, session.graph) if self.folder(session.graph) else None
        measure_with_feedback(construct, session, rng, self.per_register_tile, self.near, predict=predict)

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """Rank the programs that the policy and the traverser's walks propose, by the times that the learned model predicts."""
        return _merged(self._both(graph, rng))

    def training_seconds(self, graph: ConstructionGraph) -> float | None:
        """Return the training cost of the policy in seconds; None if the proposer has no policy."""
        return self._of_policy(graph).training_seconds(graph)

    def _both(self, graph: ConstructionGraph, rng: np.random.Generator) -> list[Construction]:
        settings = {name: getattr(self, name) for name in ("space", "most", "refined", "descents", "walkers", "steps")}
        of_walks = Corrected(**settings, correction=self.folder(graph))
        return [of_walks.construct(graph, rng), self._of_policy(graph).construct(graph, rng)]

    def _of_policy(self, graph: ConstructionGraph) -> Corrected:
        is_default = not self.checkpoint and self.proposer == "columns"
        checkpoint = str(DEFAULT[graph.hardware.kind]) if is_default else self.checkpoint
        kept: dict[str, Any] = {"space": self.space, "most": self.most, "correction": self.folder(graph)}
        return Corrected(**kept, proposer=self.proposer, checkpoint=checkpoint, trust=self.trust)


def _in_turn(found: list[Construction]) -> Iterator[Schedule]:
    """Yield the programs of several rankings alternately, each once, until one ranking has no more."""
    rounds = zip(*(made.schedules for made in found), strict=False)
    yield from dict.fromkeys(chain.from_iterable(rounds))


def _merged(found: list[Construction]) -> Construction:
    seconds: dict[Schedule, float] = {}
    for made in found:
        for schedule, value in zip(made.schedules, made.latencies, strict=True):
            seconds.setdefault(schedule, value)
    order = sorted(seconds, key=seconds.__getitem__)
    cost = sum(made.visited for made in found), sum(made.evaluations for made in found), sum(made.seconds for made in found)
    return Construction(tuple(order), tuple(seconds[one] for one in order), *cost)
