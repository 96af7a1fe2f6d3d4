"""Answer a task from its stored results, so that no search is repeated."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records.store import Store
from gensor_gym.measure.records.tuned import programs, searched
from gensor_gym.measure.session import Budget, Session, Task, TraceRow

Kept = tuple[Schedule, Measurement, tuple[TraceRow, ...]]
"""(stored program, its measurement, trials that checked imported programs)."""


def kept(
    task: Task, store: Store | str, trials: int, on_trial: Callable[[TraceRow], None] | None = None, least: int = 0
) -> Kept | None:
    """Return (fastest stored program of a task, its measurement, trials that checked imported programs).

    The result is None if no program is stored, or if searches of the task had fewer than `least` trials. Imported programs that
    claim to be faster than this machine's best are measured first, at most `trials` of them, and stored as this machine's. If
    `trials` is 0 and this machine has no program of its own, the result is the best imported program with its claimed time.
    """
    backend = get_backend(task.backend, task.hardware)
    if not backend.stored:
        return None
    store = Store(store) if isinstance(store, (str, Path)) else store
    if 0 < searched(task.operator, task.hardware, backend, store) < least:
        return None
    own = next(programs(task.operator, task.hardware, backend, store), None)
    limit = float("inf") if own is None else own[1].seconds
    theirs = programs(task.operator, task.hardware, backend, store, imported=True, below=limit)
    if trials < 1:
        found = own or next(theirs, None)
        return None if found is None else (*found, ())
    session: Session | None = None
    best = own
    for schedule, _ in islice(theirs, trials):
        session = session or Session(task, Budget(trials=trials), store, on_trial)
        (here,) = session.measure([schedule])
        if here.status is Status.OK and (best is None or here.seconds < best[1].seconds):
            best = (schedule, here)
    if best is None:
        return None
    if best is not own and session is not None:
        session.keep(*best)
    return (*best, () if session is None else tuple(session.trace))
