"""The best few programs of a search timed again together, in turns: which of them is the one to keep.

Trials of a search lie seconds apart, and a machine does not stay as fast as it was: the same loop of multiply-adds ran at 432
and, a minute later, at 383 GFLOP/s on an Intel Xeon. So the fastest trial is often one of a fast moment. In turns all finalists
meet the same moments, and the quietest of them decide. This costs no trial: nothing new is tried.
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
"""Largest quiet time of a finalist, relative to the best's."""
ROUNDS = 15


def playoff(session: Session) -> tuple[Schedule, Measurement] | None:
    """The finalist with the fastest quiet time in alternating re-timing, with its measurement in the search.

    Without a timing backend it is the search's best; None before any trial ended OK.
    """
    if session.best is None or not isinstance(session.backend, NativeBackend):
        return session.best
    schedules, hw = _finalists(session), session.task.hardware
    made = [make_kernel(session.task.operator, schedule, hw) for schedule in schedules]
    kernels = {str(place): kernel for place, kernel in enumerate(made) if isinstance(kernel, Kernel)}
    if len(kernels) < 2:
        return session.best
    try:
        samples = session.backend.compare(kernels, hw, ROUNDS)
    except (RuntimeError, WorkerLost):  # a kernel that was right before and is not now: the search's own verdict stands
        return session.best
    schedule = schedules[int(min(samples, key=lambda name: float(np.quantile(samples[name], QUIET))))]
    return schedule, session.measure([schedule])[0]


def _finalists(session: Session) -> list[Schedule]:
    """The best by their quiet seconds, the fastest first."""
    tried = [session.graph.parse(row.schedule) for row in session.trace if row.status == Status.OK.value]
    seconds = [measurement.quiet_seconds for measurement in session.measure(tried)]
    order = sorted(range(len(tried)), key=seconds.__getitem__)[:FINALISTS]
    return [tried[place] for place in order if seconds[place] <= WITHIN * seconds[order[0]]]
