"""A playoff times the best few programs of a search again, alternately, to decide which to keep.

Trials of a search are seconds apart, and a machine's speed changes: one loop of multiply-adds ran at 432 and, a minute later, at
383 GFLOP/s on an Intel Xeon. The fastest trial is therefore often from a fast moment. Alternate timing exposes all finalists to
the same moments, and each finalist's quietest samples decide. A playoff costs no trial, because it tries nothing new.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import NativeBackend, make_kernel
from gensor_gym.measure.session import Session
from gensor_gym.measure.stats.intervals import QUIET
from gensor_gym.measure.workers.process import WorkerLost

FINALISTS = 5
WITHIN = 1.1
"""Largest quiet time of a program that takes part in a playoff, as a multiple of the best one's."""
ROUNDS = 15
"""Number of rounds of a playoff after the search of one operator."""
BRIEF_ROUNDS = 5
"""Number of rounds of a playoff of a piece of a network, where playoffs took a third of the seconds to compile (ResNet-18)."""


def playoff(session: Session, rounds: int = ROUNDS) -> tuple[Schedule, Measurement] | None:
    """Time the best few programs of a search again, alternately; return the winner with its measurement in the search.

    The winner has the fastest quiet time of the playoff. For a backend that does not time kernels, the result is the search's
    best program. None if no trial succeeded.
    """
    if session.best is None or not isinstance(session.backend, NativeBackend):
        return session.best
    schedules, hw = _finalists(session), session.task.hardware
    made = [make_kernel(session.task.operator, schedule, hw) for schedule in schedules]
    kernels = {str(place): kernel for place, kernel in enumerate(made) if isinstance(kernel, Kernel)}
    if len(kernels) < 2:
        return session.best
    try:
        samples = session.backend.compare(kernels, hw, rounds, apart=True)
    except (RuntimeError, WorkerLost):  # a kernel that was correct before fails now: keep the search's best
        return session.best
    schedule = schedules[int(min(samples, key=lambda name: float(np.quantile(samples[name], QUIET))))]
    return schedule, session.measure([schedule])[0]


def _finalists(session: Session) -> list[Schedule]:
    tried = [session.graph.parse(row.schedule) for row in session.trace if row.status == Status.OK.value]
    seconds = [measurement.quiet_seconds for measurement in session.measure(tried)]
    order = sorted(range(len(tried)), key=seconds.__getitem__)[:FINALISTS]
    return [tried[place] for place in order if seconds[place] <= WITHIN * seconds[order[0]]]
