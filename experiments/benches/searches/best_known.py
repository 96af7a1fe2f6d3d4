"""The best known program of a task's space under the model: certified, enumerated if the space is small, or searched for.

The search is coordinate descent from many random programs. For one axis after another, the tiles of all levels and the virtual
threads are set to their best joint values, then each knob of the space to its best value, until nothing improves. It finds
programs that walks by single primitives barely reach.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from agents.core.programs import Programs
from experiments.common.results import write_text
from gensor_gym.construction import ConstructionGraph
from gensor_gym.fingerprint import fingerprint
from gensor_gym.foreign import read_json
from gensor_gym.graph.enumeration import count_schedules
from gensor_gym.graph.schedule import Schedule


class BestKnown:
    """A file of the best known latency in seconds by task. An entry only improves while its task's fingerprint stays the same."""

    def __init__(self, path: Path) -> None:
        """Read the file, if it exists."""
        self.path = path
        found = read_json(path) if path.exists() else {}
        self.tasks: dict[str, dict[str, Any]] = found.get("tasks", {})

    def entry(self, graph: ConstructionGraph) -> dict[str, Any] | None:
        """{"seconds", "schedule", "certified", "fingerprint"} of a task; None if there is no entry with its fingerprint."""
        found = self.tasks.get(key_of(graph))
        return found if found is not None and found["fingerprint"] == fingerprint(graph) else None

    def offer(self, graph: ConstructionGraph, schedule: Schedule, certified: bool = False) -> None:
        """Store a program if it beats the best known, or is the first certified one; ValueError if it is not in the space."""
        if not graph.is_legal(schedule):
            raise ValueError(f"{schedule} is not legal for {key_of(graph)}")
        seconds = graph.latency(schedule)
        known = self.entry(graph)
        if known is None or seconds < known["seconds"] or (certified and not known["certified"]):
            entry = {"seconds": seconds, "schedule": str(schedule), "certified": certified, "fingerprint": fingerprint(graph)}
            self.tasks[key_of(graph)] = entry

    def save(self) -> None:
        """Write the file."""
        value = {"tasks": dict(sorted(self.tasks.items()))}
        write_text(self.path, json.dumps(value, indent=1) + "\n")


def key_of(graph: ConstructionGraph) -> str:
    """Name of a task."""
    return f"{graph.operator} on {graph.hardware.name} in {graph.space}"


def search(
    graph: ConstructionGraph, enumerate_up_to: int, restarts: int, rng: np.random.Generator
) -> tuple[Schedule, bool]:
    """(best program found, whether it is certified to be the optimum)."""
    if count_schedules(graph.tables.ints, graph.tables.sizes) <= enumerate_up_to:
        return enumerated(graph), True
    starts = [graph.random_schedule(rng) for _ in range(restarts)]
    return descend(graph, starts), False


def enumerated(graph: ConstructionGraph) -> Schedule:
    """The optimum, found by evaluating all programs of the space."""
    best, seconds = graph.initial().row, np.inf
    for rows in graph.enumerate():
        latencies = graph.latencies(rows)
        at = int(np.argmin(latencies))
        if latencies[at] < seconds:
            best, seconds = rows[at].copy(), latencies[at]
    return Schedule(best)


def descend(graph: ConstructionGraph, starts: Iterable[Schedule]) -> Schedule:
    """The best program of coordinate descents from `starts`."""
    programs = Programs(graph)
    return Schedule(min((programs.descend(start.row) for start in starts), key=lambda end: end[1])[0])
