"""Record of the programs that a search has measured, which can also draw programs that it has not measured."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from agents.core.programs import Programs
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.analytic import program_key
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.session import Session

REPEATS = 1000
"""Number of consecutive repeated draws after which a space that is too large to enumerate counts as exhausted."""

WALKS = 8
"""Maximum number of random walks per wanted program. Uniform draws then replace missing programs."""


class Ledger:
    """Memory of a search's measurements, by program. The session measures only programs that are not in the memory."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.programs = Programs(session.graph)
        self._known: dict[bytes, Measurement] = {}
        self._left: list[np.ndarray] | None = None

    def __contains__(self, schedule: Schedule) -> bool:
        return program_key(schedule) in self._known

    @property
    def trials(self) -> int:
        """Number of programs that the search has measured."""
        return len(self._known)

    def measure(self, schedules: Sequence[Schedule]) -> list[Measurement]:
        """Measure programs in order, or look them up if known. The returned list is shorter if the budget ends in between.

        The session's BudgetSpent passes through.
        """
        new = list({program_key(s): s for s in schedules if s not in self}.values())
        if new:
            self._known.update((program_key(s), m) for s, m in zip(new, self.session.measure(new), strict=False))
        answers = [self._known.get(program_key(s)) for s in schedules]
        return [m for m in answers[: answers.index(None) if None in answers else None] if m is not None]

    def seconds(self, schedule: Schedule) -> float:
        """Measure one program; return its median seconds, infinite if it failed."""
        return self.measure([schedule])[0].seconds

    def fresh(self, rng: np.random.Generator, count: int = 1) -> list[Schedule]:
        """Draw up to `count` distinct unmeasured programs uniformly; fewer if the space has no more."""
        if self._left is None and (rows := self.programs.listed()) is not None:
            self._left = list(rng.permutation(rows))
        found: dict[bytes, Schedule] = {}
        if self._left is not None:
            while self._left and Schedule(self._left[-1]) in self:
                self._left.pop()
            unseen = (schedule for row in reversed(self._left) if (schedule := Schedule(row)) not in self)
            return list(islice(unseen, count))
        repeats = 0
        while len(found) < count and repeats < REPEATS:
            schedule = self.programs.uniform(rng)
            repeats = repeats + 1 if schedule in self or program_key(schedule) in found else 0
            if not repeats:
                found[program_key(schedule)] = schedule
        return list(found.values())

    def walked(self, rng: np.random.Generator, count: int) -> list[Schedule]:
        """Return up to `count` distinct unmeasured programs: ends of random walks, then uniform draws (`fresh`) for missing ones.

        Walks grow tiles more often than they shrink them. Their ends are therefore faster than uniform draws, which gives a
        search a better start.
        """
        found: dict[bytes, Schedule] = {}
        for _ in range(WALKS * count):
            if len(found) == count:
                break
            schedule = self.session.graph.random_schedule(rng)
            if schedule not in self:
                found.setdefault(program_key(schedule), schedule)
        for schedule in self.fresh(rng, count) if len(found) < count else []:
            if len(found) < count:
                found.setdefault(program_key(schedule), schedule)
        return list(found.values())
