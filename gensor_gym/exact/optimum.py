"""The certified optimum of a task: by enumeration of a small space, or by branch and bound on a GPU's CUDA cores."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact import descent
from gensor_gym.exact.certificate import Certificate
from gensor_gym.exact.incumbent import incumbent
from gensor_gym.exact.reduction import reduction_tiles
from gensor_gym.exact.ties import count_ties
from gensor_gym.fingerprint import fingerprint
from gensor_gym.graph.coordinates import moved_knobs, opened, usable_values
from gensor_gym.graph.enumeration import count_schedules
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, MAX_DIMS, ROW, SPATIAL_SLOTS, TENSOR_CORE
from gensor_gym.graph.tables.tables import COEF, IS_CPU, NUM_DIMS, NUM_READS
from gensor_gym.registry import near

ENUMERATED = 2_000_000
"""Largest number of programs, legal or not, of a space that is searched by enumeration."""
MOST_NODES = 1_000_000_000
"""Largest number of block tiles, of spatial axes and of the reduction, that a search visits: about ten minutes."""
MOST_TIES = 1 << 14
"""Largest number of classes of optimal programs for which all optimal schedules are counted. Programs of a class differ only in
virtual threads and in the reduction's register tile."""


@dataclass
class Result:
    """Result of a search: the best row, its seconds, number of schedules that take them (None if too many), counters of nodes."""

    row: np.ndarray
    seconds: float
    optima: int | None
    visited: int
    evaluated: int
    pruned: int


def certify(
    graph: ConstructionGraph,
    enumerate_up_to: int = ENUMERATED,
    slack: float = descent.SLACK,
    backwards: bool = False,
    most_nodes: int = MOST_NODES,
    knobs: Sequence[str] | None = None,
) -> Certificate:
    """Find the fastest legal program of the graph's space and prove that no legal program is faster.

    A smaller `slack` prunes less, `backwards` searches in another order: both give a second proof. `knobs` names the knobs that
    may vary. All other knobs then stay at the default rule's values, and the certificate's space is, say, `extended(unroll,
    stages)`. ValueError if the space is neither small enough to enumerate nor one of programs on a GPU's CUDA cores, or if the
    search has not ended after `most_nodes` block tiles.
    """
    moving = moving_knobs(graph, knobs)
    candidates = count_candidates(graph, moving)
    small = candidates <= enumerate_up_to and knobs is None
    begin = time.process_time()
    found = enumerated(graph) if small else branch_and_bound(graph, slack, backwards, most_nodes, knobs)
    spent = time.process_time() - begin
    return Certificate(
        operator=str(graph.operator), hardware=graph.hardware.name,
        space=graph.space if knobs is None else f"{graph.space}({', '.join(knobs)})", fingerprint=fingerprint(graph),
        method="enumeration" if small else "branch and bound", latency=found.seconds.hex(),
        schedule=str(Schedule(found.row)), optima=found.optima, candidates=candidates, visited=found.visited,
        evaluated=found.evaluated, pruned=found.pruned, bound=found.seconds.hex(), seconds=round(spent, 3),
    )  # fmt: skip


def enumerated(graph: ConstructionGraph) -> Result:
    """Find the optimum by evaluating every legal program of the space."""
    best, seconds, optima, evaluated = graph.initial().row, np.inf, 0, 0
    for rows in graph.enumerate():
        latencies = graph.latencies(rows)
        evaluated += len(rows)
        least = float(latencies.min())
        if least < seconds:
            best, seconds, optima = rows[int(np.argmin(latencies))].copy(), least, 0
        if least == seconds:
            optima += int((latencies == seconds).sum())
    visited = count_schedules(graph.tables.ints, graph.tables.sizes)
    return Result(best, seconds, optima, visited, evaluated, 0)


def branch_and_bound(
    graph: ConstructionGraph,
    slack: float = descent.SLACK,
    backwards: bool = False,
    most_nodes: int = MOST_NODES,
    knobs: Sequence[str] | None = None,
) -> Result:
    """Find the optimum by depth-first search with the lower bounds of `exact.floor`, for each setting of the knobs.

    The search runs in one thread and gives the same result every time. Arguments and ValueError are those of `certify`.
    """
    moving = moving_knobs(graph, knobs)
    check_bounded(graph, moving)
    tables = graph.tables
    start, seconds, evaluations = incumbent(graph, moving)
    best, best_row = np.array([seconds]), start.copy()
    ties = np.empty((MOST_TIES, ROW), dtype=np.int32)
    counts = np.zeros(descent.NUM_COUNTS, dtype=np.int64)
    counts[descent.LIMIT] = most_nodes
    reduce, inner = reduction_tiles(tables)
    settings = list(knob_settings(graph, moving))
    for setting in reversed(settings) if backwards else settings:
        row = opened(graph.initial().row, tables.ints)
        row[KNOB:] = setting
        rest = (reduce, inner, tables.ints, tables.floats, tables.sizes, best, best_row, ties, counts, slack, backwards)
        if not descent.descend(row, *rest):
            raise ValueError(f"{graph.operator} in space {graph.space!r}: no proof within {most_nodes} nodes")
    graph.charge(int(counts[descent.EVALUATED]))
    classes = int(counts[descent.TIES])
    optima = None
    if classes <= MOST_TIES:
        optima = int(count_ties(ties[:classes], best[0], tables.ints, tables.floats, tables.sizes))
    return Result(
        best_row, float(best[0]), optima, int(counts[descent.CHOSEN] + counts[descent.REDUCE]),
        int(counts[descent.EVALUATED]) + evaluations, int(counts[descent.PRUNED]),
    )  # fmt: skip


def moving_knobs(graph: ConstructionGraph, names: Sequence[str] | None = None) -> list[int]:
    """Return the indices of the knobs that the space varies, or of those in `names`. ValueError for a knob that it fixes."""
    moved = moved_knobs(graph.tables.ints)
    if names is None:
        return moved
    unknown = set(names) - {KNOBS[k].name for k in moved}
    if unknown:
        known = [KNOBS[k].name for k in moved]
        raise ValueError(f"space {graph.space!r} moves no knobs {sorted(unknown)}: it moves {known}{near(unknown, known)}")
    return [k for k in moved if KNOBS[k].name in names]


def count_candidates(graph: ConstructionGraph, moving: Sequence[int]) -> int:
    """Count the combinations of tiles and virtual threads of all axes and values of the knobs in `moving`, legal or not."""
    return graph.coordinates.moving(moving).size


def knob_settings(graph: ConstructionGraph, moving: Sequence[int]) -> Iterator[np.ndarray]:
    """Yield the values int32 [K] of all knobs, for every setting of the knobs in `moving` that is valid on CUDA cores."""
    tensor = [index for index, knob in enumerate(KNOBS) if 0 not in knob.cores]  # knobs of tensor cores alone
    for values in itertools.product(*(usable_values(graph.tables.ints, k) for k in moving)):
        knobs = graph.initial().row[KNOB:].copy()
        knobs[list(moving)] = values
        if knobs[tensor].max() == 0:
            yield knobs


def check_bounded(graph: ConstructionGraph, moving: Sequence[int]) -> None:
    """Raise ValueError if `exact.floor` cannot bound the task.

    It cannot for CPUs, for tensor cores, and if a reduce axis indexes two dimensions of a tensor.
    """
    ints = graph.tables.ints
    if ints[IS_CPU]:
        raise ValueError(f"branch and bound is for GPUs, not {graph.hardware.name!r}; on a CPU spaces are enumerated")
    if TENSOR_CORE - KNOB in moving and len(usable_values(graph.tables.ints, TENSOR_CORE - KNOB)) > 1:
        raise ValueError(f"{graph.operator} may use tensor cores in space {graph.space!r}; branch and bound knows none")
    for tensor in range(ints[NUM_READS]):
        dims = ints[COEF + tensor * MAX_DIMS * MAX_AXES :][: ints[NUM_DIMS + tensor] * MAX_AXES].reshape(-1, MAX_AXES)
        if ((dims != 0).sum(axis=0)[SPATIAL_SLOTS:] > 1).any():
            raise ValueError(f"{graph.operator}: a reduce axis moves two dimensions of a tensor; branch and bound needs one")
