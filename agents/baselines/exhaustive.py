"""Exhaustive search: measure every legal schedule of a space, or every configuration of a recorded space, once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import numpy as np

from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.measure.search import Node
from gensor_gym.measure.session import SearchSession, Session

STORING = GirSchedule.places["streaming"]
FAMILY = [GirSchedule.places["vector"], GirSchedule.places["rows"], STORING]
"""Positions in an encoded fused schedule at which all programs of a family (see `Exhaustive`) are equal."""
BEFORE_OTHER = 3
"""Maximum number of trials before the best program with the other kind of store (bypassing the caches or not) is tried."""


@dataclass(frozen=True)
class Exhaustive:
    """Rank every legal schedule by the model, then measure in that order until the budget is spent.

    Programs of a fused operator form families, with equal vectorisation, block of rows, kind of store, and number of tasks (one
    or several), because the model's error is similar within a family. Families whose best program is near the overall best take
    turns; each turn measures the family's next program. The best program with the other kind of store (with or without bypassing
    the caches) is measured fourth at the latest, even if its model time is long, because the cost of stores differs most between
    processors.

    In space `compact` and without a limit on trials this measures the whole space and finds the backend's optimum. A recorded
    space has no model; its configurations are measured in the order of the file.
    """

    space: str = "compact"
    keep: int = 4096
    """Number of programs that are kept for measuring, unless the budget has more trials."""
    near: float = 1.2
    """Families of a fused operator take turns with their programs whose model time is at most this multiple of the shortest."""

    def search(self, session: SearchSession[Node], rng: np.random.Generator) -> None:
        """Measure the schedules or configurations one by one, in the order that the class describes."""
        rows = self._ranked(session) if isinstance(session, Session) else chain.from_iterable(session.graph.enumerate())
        for row in rows:
            session.measure([session.graph.schedule(row)])

    def _ranked(self, session: Session) -> Iterable[np.ndarray]:
        rows, seconds = session.graph.stack([]), np.empty(0)
        keep = max(self.keep, session.budget.trials or 0)
        for batch in session.graph.enumerate():
            rows = np.concatenate([rows, batch])
            seconds = np.concatenate([seconds, session.predict(batch)])
            order = np.argsort(seconds, kind="stable")[:keep]
            rows, seconds = rows[order], seconds[order]
        if isinstance(session.graph, GirGraph) and len(rows):
            return rows[tried_first(session.graph, rows, seconds, self.near)]
        return rows


def tried_first(graph: GirGraph, rows: np.ndarray, seconds: np.ndarray, near: float = Exhaustive.near) -> np.ndarray:
    """Return the order, int64 [B], in which to try programs of a fused operator, given their model seconds float64 [B].

    `rows` int32 [B, ROW] are the encoded programs. Families (programs with the same vectorisation, block of rows and kind of
    store) take turns if their best program is within `near` times the overall best. Programs with a single task form families of
    their own, because the model errs most on the cost of starting threads.
    """
    order = np.argsort(seconds, kind="stable")
    header = GirSchedule.columns(rows)
    alone = header["rows"] * header["loop"] >= graph.nest.rows
    families = np.column_stack([rows[:, FAMILY], alone])
    turns = in_turns(families[order], seconds[order], near * seconds[order[0]])
    _, best = np.unique(rows[order, STORING], return_index=True)
    other = best.max()
    if other not in turns[: BEFORE_OTHER + 1]:
        turns = np.insert(turns[turns != other], BEFORE_OTHER, other)
    found: np.ndarray = order[turns]
    return found


def in_turns(families: np.ndarray, seconds: np.ndarray, limit: float) -> np.ndarray:
    """Return the order, int64 [B], in which families of programs take turns. Programs are sorted by `seconds` float64 [B].

    Equal rows of `families` [B, K] are one family, and each turn takes the family's next program. Programs above `limit` seconds
    come last, in sorted order.
    """
    met: dict[bytes, int] = {}
    turns = []
    for family, late in zip(np.ascontiguousarray(families), seconds > limit, strict=True):
        key = family.tobytes()
        turns.append(len(seconds) if late else met.setdefault(key, 0))
        met[key] = met.get(key, 0) + 1
    found: np.ndarray = np.argsort(np.array(turns), kind="stable")
    return found
