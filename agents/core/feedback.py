"""Measure programs in the order of the model's predictions, which measurements correct, structure by structure.

A structure is the knobs that change the code as a whole. The model's error is similar for similar programs: for example, all
programs with an unpacked operand suffer from the same cache sets. A program's predicted time is therefore the model's time
multiplied by the mean ratio measured / model so far of programs with the same structure. Two rules diversify the trials. Each
register tile has a limit of trials among programs that are predicted to be near the best. Every other trial is a neighbour of the
best measured program.

The measured time is that of a trial's quietest samples. With medians, a search of gemm 512x512x512 next to other work on the
machine did not leave the structure of its first four trials (1.3 to 3.0 ms) and ended at 1.16 ms instead of 0.89 ms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from agents.core.programs import Programs
from agents.core.ranking import STRUCTURE, Construction, tile_of, until_nothing_new
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.session import Session

FAILED = math.log(4.0)
"""Log ratio that counts for a failed trial, relative to the common scale: four times slower than predicted."""
SLACK = 1.03
"""Largest predicted time of a neighbour that is measured, as a multiple of the best program's time."""
TRIES = 20
"""Maximum number of neighbours that are drawn to find a new one."""
PRIOR = 0.5
"""Weight, in trials, that the best structure's mean ratio has in every other structure's mean.

With 0.5, the first trial of a structure moves the structure's prediction two thirds of the way.
"""


def structure_of(schedule: Schedule) -> bytes:
    """Return a hashable key of a program's structure, the knobs that change the generated code as a whole (`STRUCTURE`)."""
    return schedule.row[STRUCTURE].tobytes()


Predict = Callable[[np.ndarray], np.ndarray]
"""Function that predicts the seconds float64 [B] of encoded programs int32 [B, ROW] by the model that ranks."""


@dataclass
class Feedback:
    """Running means of log(measured / model) for every structure (knobs that change the code as a whole).

    A common factor of all structures has no effect on predictions.
    """

    sums: dict[bytes, float] = field(default_factory=dict)
    counts: dict[bytes, int] = field(default_factory=dict)

    def add(self, schedule: Schedule, model: float, measured: float) -> None:
        """Record one trial with its model time and measured time in seconds; `measured` is infinite if it failed."""
        key = structure_of(schedule)
        ratio = math.log(measured / model) if math.isfinite(measured) else self.scale() + FAILED
        self.sums[key] = self.sums.get(key, 0.0) + ratio
        self.counts[key] = self.counts.get(key, 0) + 1

    def scale(self) -> float:
        """Return the smallest mean of log(measured / model) over the structures; 0 before any trial."""
        return min((self.sums[key] / self.counts[key] for key in self.sums), default=0.0)

    def corrected(self, schedule: Schedule, model: float) -> float:
        """Return a program's predicted seconds on the scale of the measurements; `model` is the model's time."""
        key, scale = structure_of(schedule), self.scale()
        count = self.counts.get(key, 0)
        off = (self.sums.get(key, 0.0) + PRIOR * scale) / (count + PRIOR)
        return model * math.exp(off)


def measure_with_feedback(
    construct: Callable[[ConstructionGraph, np.random.Generator], Construction],
    session: Session,
    rng: np.random.Generator,
    per_register_tile: int,
    near: float,
    explored: float = 0.0,
    predict: Predict | None = None,
    first: Callable[[Sequence[Schedule]], Sequence[Schedule]] | None = None,
) -> None:
    """Construct programs and measure them in the order of corrected predictions, again and again.

    Those that `first` returns of a ranking are measured before all others.

    The search ends when the budget is spent or no new program is constructed. `Trials` describes the order and the arguments.
    """
    trials = Trials(session, rng, per_register_tile, near, explored, predict)

    def measure(found: Construction) -> None:
        trials.measure(found.schedules, found.latencies, first(found.schedules) if first else ())

    until_nothing_new(construct, session, rng, measure)


class Trials:
    """Choice of the next program to measure: the best of a ranking or, every other time, a neighbour of the best measured one.

    First come the best programs of structures (`structure_of`) without measurements, if the model's time is at most `explored`
    times the best of all. Next come programs of the ranking whose predicted times are at most `near` times the best, and whose
    register tiles have fewer than `per_register_tile` measurements. If no such program is left, `per_register_tile` grows by its
    initial value. A neighbour differs in one column (`agents.core.programs`), and is at most 3 % (`SLACK`) slower by `predict`.
    """

    def __init__(
        self, session: Session, rng: np.random.Generator, per_register_tile: int, near: float, explored: float = 0.0,
        predict: Predict | None = None,
    ) -> None:  # fmt: skip
        """Prepare the choice of programs, without measurements. `predict` ranks neighbours, by default the graph's model.

        ValueError if `per_register_tile` or `near` is below 1.
        """
        if per_register_tile < 1 or not near >= 1.0:
            raise ValueError(f"per_register_tile={per_register_tile}, near={near}: expected 1 or more for both")
        self.session, self.rng, self.per_tile, self.near, self.explored = session, rng, per_register_tile, near, explored
        self.feedback, self.predict = Feedback(), predict
        self.programs = Programs(session.graph)
        self.bound = per_register_tile
        self.tiles: dict[bytes, int] = {}
        self.measured: set[Schedule] = set()
        self.best: tuple[float, Schedule] | None = None
        """(quiet seconds, schedule) of the fastest measured program; None before any succeeded."""

    def measure(self, schedules: Sequence[Schedule], seconds: Sequence[float], first: Sequence[Schedule] = ()) -> None:
        """Measure all new programs of a ranking, `schedules` with model times `seconds`, beginning with those of `first`.

        After every second trial a neighbour of the best program is measured too.
        """
        left = {s: model for s, model in zip(schedules, seconds, strict=True) if s not in self.measured}
        for schedule in (one for one in first if one in left):
            self._try(schedule, left.pop(schedule))
        for schedule in self._unknown(left):
            self._try(schedule, left.pop(schedule))
        while left:
            chosen = self._from_ranking(left)
            self._try(chosen, left.pop(chosen))
            if len(self.measured) % 2 == 0 and (found := self._neighbour()):
                left.pop(found[0], None)
                self._try(*found)

    def _unknown(self, left: dict[Schedule, float]) -> list[Schedule]:
        """Return the best program of every structure (`structure_of`) without measurements, fastest first.

        Only programs within `explored` times the shortest model time count.
        """
        limit, firsts = self.explored * min(left.values(), default=0.0), dict[bytes, Schedule]()
        for schedule in sorted(left, key=left.__getitem__):
            if left[schedule] > limit:
                break
            firsts.setdefault(structure_of(schedule), schedule)
        return [schedule for structure, schedule in firsts.items() if structure not in self.feedback.counts]

    def _from_ranking(self, left: dict[Schedule, float]) -> Schedule:
        predicted = {schedule: self.feedback.corrected(schedule, seconds) for schedule, seconds in left.items()}
        limit = self.near * min(predicted.values())
        close = [schedule for schedule, seconds in predicted.items() if seconds <= limit]
        while not (fresh := [s for s in close if self.tiles.get(tile_of(s), 0) < self.bound]):
            self.bound += self.per_tile
        return min(fresh, key=predicted.__getitem__)

    def _neighbour(self) -> tuple[Schedule, float] | None:
        if self.best is None:
            return None
        best = self.best[1]
        rows, seconds = self.programs.neighbours(best.row)
        if self.predict is None:
            limit = SLACK * self.session.graph.latency(best)
        else:
            seconds, limit = self.predict(rows), SLACK * float(self.predict(best.row[None])[0])
        close = np.flatnonzero(seconds <= limit)
        for at in self.rng.permutation(close)[:TRIES]:
            schedule = Schedule(rows[at])
            if schedule not in self.measured:
                return schedule, float(seconds[at])
        return None

    def _try(self, schedule: Schedule, model: float) -> None:
        (measured,) = self.session.measure([schedule])
        seconds = measured.quiet_seconds
        self.feedback.add(schedule, model, seconds)
        if math.isfinite(seconds) and (self.best is None or seconds < self.best[0]):
            self.best = seconds, schedule
        self.tiles[tile_of(schedule)] = self.tiles.get(tile_of(schedule), 0) + 1
        self.measured.add(schedule)
