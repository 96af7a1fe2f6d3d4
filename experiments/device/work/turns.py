"""Turns of operators on the device: a share of the time for each operator's candidates, then more rounds for slow operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from experiments.device.work.makers import Programs
from experiments.device.work.pipeline import Work
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.operators.types import Operator

ROUND = 16
"""Number of an operator's candidates in a round."""
AT_ONCE = 4
"""Number of operators of a later round with candidates under way together; the operators furthest behind come first."""
LEAST_SHARE = 4.0
"""Device seconds that every operator is granted in a round."""

GENEROUS = 3.0
"""Largest share of an operator, relative to an even part of the remaining time; most operators take far less."""

Ticket = tuple[str, int]
"""(name of an operator, index of the candidate among the operator's candidates)."""


@dataclass
class Entry:
    """One operator: its candidates so far, and the results of the tried candidates."""

    name: str
    op: Operator
    job: Future[Programs]
    begun: int = 0
    answered: int = 0
    goal: int = ROUND
    rounds: int = 0
    """Number of finished rounds."""
    in_round: bool = True
    spent: float = 0.0
    """Device seconds in this round of successful trials; failed trials do not count."""
    share: float = math.inf
    tried: list[tuple[Schedule, Measurement]] = field(default_factory=list)
    ahead: float | None = None
    """Seconds of the fastest library over ours; None before a comparison or without a library."""
    failed: str = ""
    """Reason for missing candidates; empty otherwise."""

    @property
    def programs(self) -> Programs:
        """Candidates; empty while they are computed and after an error, whose text is then in `failed`."""
        if not self.job.done() or self.failed:
            return []
        try:
            return self.job.result()
        except Exception as error:  # an operator without candidates does not end the stage
            self.failed = f"no candidates: {type(error).__name__}: {error}"
            return []

    @property
    def is_open(self) -> bool:
        """Whether another candidate may be begun."""
        return self.in_round and self.begun < min(self.goal, len(self.programs)) and self.spent < self.share

    @property
    def is_settled(self) -> bool:
        """Whether the round has ended: all begun candidates have answered, and no more may be begun."""
        return self.in_round and self.job.done() and not self.is_open and self.begun == self.answered

    @property
    def is_exhausted(self) -> bool:
        """Whether all candidates have been begun."""
        return self.job.done() and self.begun >= len(self.programs)

    @property
    def best(self) -> tuple[Schedule, Measurement] | None:
        """The fastest successful candidate; None if there is none."""
        good = [pair for pair in self.tried if pair[1].status is Status.OK]
        return min(good, key=lambda pair: pair[1].seconds) if good else None


class Turns:
    """Hands out candidates, operator by operator in order; then further rounds for operators furthest behind their library."""

    def __init__(self, entries: Sequence[Entry], left: Callable[[], float]) -> None:
        """Begin with the first round of all entries; `left` returns the seconds left for trials."""
        self._entries = {entry.name: entry for entry in entries}
        self._left = left

    def work(self) -> Iterator[Work[Ticket] | None]:
        """Yield candidates to try, or None while there are none; end when no operator has any left."""
        while any(entry.in_round or not entry.is_exhausted for entry in self._entries.values()):
            entry = next((entry for entry in self._entries.values() if entry.is_open), None)
            if entry is None:
                yield None
            else:
                place, entry.begun = entry.begun, entry.begun + 1
                yield (entry.name, place), entry.programs[place][1]

    def admit(self, ticket: Ticket) -> bool:
        """Whether a ready candidate is still to be tried; a refused candidate counts as answered."""
        entry = self._entries[ticket[0]]
        if entry.spent < entry.share:
            return True
        entry.answered += 1
        return False

    def take(self, ticket: Ticket, measurement: Measurement, seconds: float) -> None:
        """Record a trial that took the device `seconds`. An operator's share begins to count after its first success."""
        entry = self._entries[ticket[0]]
        entry.answered += 1
        entry.tried.append((entry.programs[ticket[1]][0], measurement))
        if measurement.status is not Status.OK:
            return
        if math.isinf(entry.share):
            waiting = sum(not entry.rounds for entry in self._entries.values())
            entry.share = max(LEAST_SHARE, GENEROUS * self._left() / max(1, waiting))
        else:
            entry.spent += seconds

    def settled(self) -> Iterator[Entry]:
        """Yield operators whose round has just ended, each once, to be compared with their library."""
        for entry in self._entries.values():
            if entry.is_settled:
                entry.in_round, entry.rounds = False, entry.rounds + 1
                yield entry

    def unsettled(self) -> list[Entry]:
        """Operators in the middle of a round that have a successful candidate."""
        return [entry for entry in self._entries.values() if entry.in_round and entry.best is not None]

    def next_round(self) -> None:
        """Once every operator had a round, give the operators furthest behind another round, a few at a time."""
        entries = self._entries.values()
        if not all(entry.rounds for entry in entries):
            return
        running = sum(entry.in_round for entry in entries)
        behind = [entry for entry in entries if not entry.in_round and not entry.is_exhausted]
        behind.sort(key=lambda entry: (entry.rounds, math.inf if entry.ahead is None else entry.ahead))
        for entry in behind[: max(0, AT_ONCE - running)]:
            entry.in_round, entry.goal = True, entry.begun + ROUND
            entry.spent, entry.share = 0.0, math.inf
