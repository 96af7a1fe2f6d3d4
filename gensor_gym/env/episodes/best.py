"""The option `reward="best_so_far"`, with which every evaluated program may be rewarded, not only the last.

Every episode keeps its fastest evaluated program. A faster program pays the gain in the final reward R. The code is Python, not
part of the compiled process, because only Python knows measured times.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from gensor_gym.env.episodes.scalars import BEST, LATENCY, PAID, STEPS
from gensor_gym.env.measured import FinalReward, Graph
from gensor_gym.env.reward import improvement
from gensor_gym.graph.compiling.early import at_once
from gensor_gym.measure.measurement import Status

OK = Status.OK.value


class Paid(NamedTuple):
    """Result of evaluating N programs, one per chosen episode.

    `gains` float64 [N] is the excess of the final reward R over the best R of the episode so far (0 if R is lower), `seconds`
    float64 [N] the programs' times, and `statuses` their N status names.
    """

    gains: np.ndarray
    seconds: np.ndarray
    statuses: list[str]


def pay(
    final: FinalReward, chosen: np.ndarray, graphs: list[Graph], rows: np.ndarray, scalars: np.ndarray, best: np.ndarray
) -> Paid:
    """Evaluate the current program of each chosen episode, and keep programs that are faster than the best of their episode.

    `chosen` [N] are indices into the B running episodes, and `graphs` the construction graphs of these N episodes. `rows` and
    `best` int32 [B, R] hold the current and the fastest evaluated program of every episode, `scalars` float64 [B, NUM_SCALARS]
    the process's numbers. `best` and `scalars` are updated in place.
    """
    before = scalars[chosen, BEST]
    if final.backend is None:  # the compiled process has paid R already, and every program is legal
        found = Paid(np.zeros(len(chosen)), scalars[chosen, LATENCY], [OK] * len(chosen))
    else:
        found = _measured(final, graphs, rows[chosen], scalars[chosen, LATENCY], before)
    faster = found.seconds < before
    scalars[chosen, BEST] = np.where(faster, found.seconds, before)
    scalars[chosen, PAID] += 1
    best[chosen[faster]] = rows[chosen[faster]]
    return found


def _measured(
    final: FinalReward, graphs: list[Graph], rows: np.ndarray, latencies: np.ndarray, before: np.ndarray
) -> Paid:
    """Evaluate N programs with the backend. `before` float64 [N] is the shortest time in each episode so far, in seconds.

    The seconds of the result are infinite unless the status is OK.
    """
    facts = [fact for _, fact in final.of(graphs, list(rows), latencies.tolist())]
    statuses = [fact["status"] for fact in facts]
    seconds = np.array([fact["runtime_s"] if fact["status"] == OK else math.inf for fact in facts])
    with at_once():
        gains = [
            0.0 if now == math.inf else float(improvement(graph.floor, best, now))
            for graph, best, now in zip(graphs, before.tolist(), seconds.tolist(), strict=True)
        ]
    return Paid(np.array(gains), seconds, statuses)


def facts_of_best(final: FinalReward, graph: Graph, scalars: np.ndarray, best: np.ndarray, last: str) -> dict[str, Any]:
    """Return the entries of `info` that describe the fastest evaluated program of an ended episode.

    `scalars` [NUM_SCALARS] are the episode's numbers and `best` [R] is its fastest program. `status` is OK if any program of
    the episode was OK, else `last`, the status of the last program. `regret` is present if the task's optimum is known.
    """
    seconds = float(scalars[BEST])
    ok = seconds < math.inf
    regret = final.regret(graph, best, seconds) if ok else None
    facts = {"runtime_s": seconds, "status": OK if ok else last, "steps": int(scalars[STEPS])}
    known = {} if regret is None else {"regret": regret}
    return facts | known | {"paid": int(scalars[PAID]), "best": best.copy()}
