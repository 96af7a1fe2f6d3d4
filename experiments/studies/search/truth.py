"""Regrets of a task's kernels, relative to the best of a recorded space or to the best that any search found."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from experiments.statistics.statistics import best_so_far, expected_best
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.records.backend import RecordedBackend
from gensor_gym.operators.types import Operator


class BestKnown:
    """Regrets relative to the fastest kernel of all searches of the study: all that is known without a complete recording."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Read the trials of all searches. ValueError if none succeeded."""
        known = {row["schedule"]: row["seconds"] for row in rows if row["seconds"] is not None}
        if not known:
            raise ValueError("no trial of any search ran well: there is no best to compare with")
        best = min(known.values())
        self._keep({schedule: math.log(seconds / best) for schedule, seconds in known.items()})

    def _keep(self, regrets: dict[str, float]) -> None:
        """Keep the regrets of all kernels; those of failed kernels are infinite, and they count as the slowest."""
        self._of = regrets
        self.worst = max(regret for regret in regrets.values() if math.isfinite(regret))
        self.regrets = np.minimum(list(regrets.values()), self.worst)

    def chance(self, length: int) -> np.ndarray:
        """Expected regret of the best of k = 1 .. length random draws, here unknown: NaN [length]."""
        return np.full(length, math.nan)

    def curve(self, schedules: list[str], length: int) -> np.ndarray:
        """Regret of the best program after k = 1 .. length trials of these schedules; a failure counts as the slowest kernel."""
        regrets = [min(self._of.get(self._key(text), self.worst), self.worst) for text in schedules]
        return best_so_far(regrets or [self.worst], length)

    def _key(self, text: str) -> str:
        """Name of a schedule's kernel."""
        return text


class Truth(BestKnown):
    """Regrets of all kernels of one operator in a recorded space. Schedules with the same kernel share a digest."""

    def __init__(self, operator: Operator, hardware: Hardware, space: str, backend: RecordedBackend) -> None:
        """Read the table. ValueError if it lacks a schedule of the space, or if nothing in it succeeded."""
        graph = ConstructionGraph(operator, hardware, space)
        schedules = []
        for schedule in (Schedule(row) for batch in graph.enumerate() for row in batch):  # a larger space is not enumerated
            if backend.measure(operator, [schedule], hardware)[0].status is Status.NOT_RECORDED:
                raise ValueError(f"the table of {operator} does not hold all of space {space!r}: its best is unknown")
            schedules.append(schedule)
        self._digest = lambda schedule: backend.digest(operator, schedule, hardware)
        found: dict[str, float] = {}
        for schedule in schedules:
            regret = backend.regret(graph, schedule)
            if regret is None:
                raise ValueError(f"nothing in the table of {operator} ran well")
            digest = self._digest(schedule)
            found[digest] = min(regret, found.get(digest, math.inf))
        self._keep(found)
        self._known: dict[str, str] = {}

    @cached_property
    def random(self) -> np.ndarray:
        """Expected regret of the best of k kernels drawn uniformly without replacement, for k = 1 .. kernels."""
        return expected_best(self.regrets)

    def chance(self, length: int) -> np.ndarray:
        """`random` for k = 1 .. length; constant once all kernels are drawn."""
        return best_so_far(self.random, length)

    def _key(self, text: str) -> str:
        """Digest of a schedule's kernel, cached."""
        if text not in self._known:
            self._known[text] = self._digest(Schedule.parse(text))
        return self._known[text]
