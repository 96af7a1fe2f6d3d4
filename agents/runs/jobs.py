"""Run one job, a search in a session. Its trials are written when they end, its outcome at the end of the search."""

from __future__ import annotations

import dataclasses
import json
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents import get_strategy
from agents.cli.stopping import of_a_stop
from agents.optimizer import run
from agents.runs.files import make_folder, write_text
from agents.runs.journal import locked
from agents.runs.results import Results
from agents.runs.settings import Job
from agents.strategy import Strategy
from gensor_gym.construction import ConstructionGraph
from gensor_gym.foreign import read_fields
from gensor_gym.measure.backend import Backend
from gensor_gym.measure.records.store import Store
from gensor_gym.measure.session import Budget, Session, Task, TraceRow

DONE, NOT_RUN, FAILED = "DONE", "NOT_RUN", "FAILED"
"""Statuses of a job: searched to its end; could not start (for example without its checkpoint); failed during the search."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a job: its status, counts, costs and best schedule.

    `construction_s` is the search's wall time outside of `Session.measure`.
    """

    status: str
    error: str = ""
    trials: int = 0
    evaluations: int = 0
    elapsed_s: float = 0.0
    construction_s: float = 0.0
    training_s: float | None = None
    space: str = ""
    schedule: str = ""
    seconds: float | None = None
    """Seconds of the best schedule, as the search measured it."""


class Jobs:
    """Runs the jobs of one comparison, with a common backend, store and folder."""

    def __init__(self, backend: Backend, store: Path, folder: Path) -> None:
        """Open the journal of trials and the store, and make their folders.

        ValueError if a folder cannot be written, or another process works in it.
        """
        self.backend = backend
        self.folder = folder / "jobs"
        self._lock = locked(folder)
        self.results = Results(folder / "results.jsonl")
        self.store = Store(make_folder(store.parent) / store.name) if backend.stored else None

    def finished(self, job: Job) -> Outcome | None:
        """Return the stored outcome of a job that was finished with the same configuration; None if it was not.

        ValueError if its earlier trials have another fingerprint (`Results.check`).
        """
        self.results.check(job)
        path = self._path(job)
        if not path.exists():
            return None
        found = read_fields(path, Outcome, "outcome")
        return found if len(self.results.rows(job)) == found.trials else None

    def run(self, job: Job, on_trial: Callable[[TraceRow], None]) -> Outcome:
        """Run a job's search and return its outcome.

        The store answers known trials. Only a job with status DONE counts as finished.
        """
        self.results.keep_only(job)

        def observed(row: TraceRow) -> None:
            self.results.put(job, row)
            on_trial(row)

        return self._end(job, *attempt(job, self.backend, self.store, observed))

    def keep(self, job: Job, trials: Sequence[TraceRow], outcome: Outcome, trace: str) -> Outcome:
        """Record the trials and outcome of a job that `attempt` ran in another process; return the outcome."""
        self.results.keep_only(job)
        self.results.put_all(job, trials)
        return self._end(job, outcome, trace)

    def close(self) -> None:
        """Close the journal and unlock the folder for other processes; otherwise this happens when the object is deleted."""
        self.results.close()
        self._lock.close()

    def warm_up(self, job: Job) -> None:
        """Load and compile the code of a job's strategy (`warm_up`). An error is written to a file next to the jobs."""
        if (error := warm_up(job)) is not None:
            write_text(self.folder / f"{job.key}.warm_up.txt", error + "\n")

    def _end(self, job: Job, outcome: Outcome, trace: str) -> Outcome:
        """Record how a job ended and return its outcome.

        The traceback `trace` of an unexpected error is written to a file of its own.
        """
        if trace:
            path = self.folder / f"{job.key}.error.txt"
            write_text(path, trace)
            outcome = dataclasses.replace(outcome, error=f"{outcome.error} (more in {path})")
        self.results.cut(job, outcome.trials)
        if outcome.status == DONE:
            value = {"job": job.config, "outcome": dataclasses.asdict(outcome)}
            write_text(self._path(job), json.dumps(value, indent=1, default=str))
        return outcome

    def _path(self, job: Job) -> Path:
        return self.folder / f"{job.key}.json"


def attempt(
    job: Job, backend: Backend, store: Store | None, on_trial: Callable[[TraceRow], None]
) -> tuple[Outcome, str]:
    """Run a job's search; return (outcome, traceback of an unexpected error or empty text)."""
    trials = 0

    def observed(row: TraceRow) -> None:
        nonlocal trials
        on_trial(row)
        trials += 1

    try:
        return _search(job, backend, store, observed), ""
    except Exception as error:  # a user's strategy may raise anything, and other jobs still run
        if of_a_stop(error):
            raise
        first = (str(error).strip() or "no message").splitlines()[0]
        expected = not trials and isinstance(error, (ValueError, OSError, ImportError))
        outcome = Outcome(NOT_RUN if expected else FAILED, f"{type(error).__name__}: {first[:300]}", trials)
        return outcome, "" if expected else traceback.format_exc()


def unguided(job: Job) -> str:
    """Return a warning if a job's budget ends before measurements guide its search; empty for other jobs."""
    first, trials = getattr(get_strategy(job.of, **job.hyperparameters), "unguided", 0), job.budget.trials
    if trials is None or trials > first:
        return ""
    return f"{job.strategy}: measurements guide it after {first} trials, and budget.trials={trials} ends before"


def warm_up(job: Job) -> str | None:
    """Load and compile a strategy's code on a tiny task of the model, so that no search is charged for it.

    Return None or the text of an error. The job will meet and report that error itself.
    """
    try:
        strategy = get_strategy(job.of, **job.hyperparameters)
        task = Task.of("gemm(m=16, n=16, k=16)", job.hardware, "analytic", strategy.space)
        run(strategy, Session(task, Budget(trials=2)), seed=0)
    except Exception as error:
        if of_a_stop(error):
            raise
        return f"{type(error).__name__}: {error}"
    return None


def _search(job: Job, backend: Backend, store: Store | None, on_trial: Callable[[TraceRow], None]) -> Outcome:
    strategy = get_strategy(job.of, **job.hyperparameters)
    task = Task(job.operator, job.hardware, backend, strategy.space)
    session = Session(task, job.budget, store, on_trial)
    begin = time.perf_counter()
    run(strategy, session, job.seed)
    wall = time.perf_counter() - begin
    best = session.best
    return Outcome(
        DONE,
        trials=session.trials,
        evaluations=session.evaluations,
        elapsed_s=session.elapsed,
        construction_s=wall - session.measuring,
        training_s=_training_seconds(strategy, session.graph),
        space=strategy.space,
        schedule=str(best[0]) if best else "",
        seconds=best[1].seconds if best else None,
    )


def _training_seconds(strategy: Strategy, graph: ConstructionGraph) -> float | None:
    cost = getattr(strategy, "training_seconds", None)
    seconds = cost(graph) if callable(cost) else cost
    return None if seconds is None else float(seconds)
