"""The journal of trials in results.jsonl: one row per trial, appended when the trial ends.

Written rows are never lost or duplicated.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents.runs.journal import Journal
from agents.runs.settings import Job
from gensor_gym.foreign import meant
from gensor_gym.measure.session import TraceRow

FIELDS = (
    "operator", "hardware", "backend", "strategy", "seed", "trial", "elapsed_s", "schedule", "seconds", "status",
    "evaluations", "fingerprint", "job",
)  # fmt: skip
"""Fields of every line of results.jsonl.

`seconds` is null unless the status is OK; `job` is a key that names the configuration of the trial.
"""
SLOT = ("operator", "hardware", "backend", "strategy", "seed")
"""Fields of a row whose values make up `Job.slot`, which identifies the job."""


class Results:
    """The journal results.jsonl of all jobs' trials: one row per trial.

    A trial of a repeated search keeps its earlier row if its schedule and status are the same.
    """

    def __init__(self, path: Path) -> None:
        """Open and read results.jsonl. ValueError if another process writes to it."""
        self.path = path
        self._journal = Journal(path, ("job", "trial"), finite=True)
        self._trials: dict[str, set[int]] = {}
        self._keys: dict[tuple, set[str]] = {}
        with meant(path, "journal of trials"):
            for row in self._journal:
                _check(row)
                self._note(row)

    def close(self) -> None:
        """Close the journal of trials, so that other processes can write to it."""
        self._journal.close()

    def rows(self, job: Job) -> list[dict[str, Any]]:
        """Return the rows of a job's trials in order."""
        return self._rows(job.key)

    def check(self, job: Job) -> None:
        """Check that earlier trials in the job's slot have its fingerprint. ValueError if not.

        A slot is operator, machine, backend, strategy and seed. An empty fingerprint passes.
        """
        if not job.fingerprint:
            return
        rows = (row for key in self._keys.get(job.slot, ()) for row in self._rows(key))
        if others := {row["fingerprint"] for row in rows} - {job.fingerprint}:
            raise ValueError(
                f"{self.path} holds results of {job.operator} by {job.strategy} under fingerprint {', '.join(sorted(others))}, "
                f"here it is {job.fingerprint}: they do not compare; name another folder with output=..."
            )

    def keep_only(self, job: Job) -> None:
        """Drop rows of earlier versions of the job: those with the same slot (see `check`) but another key.

        Another key means other code or hyperparameters.
        """
        for key in self._keys.get(job.slot, set()) - {job.key}:
            self._cut(key, 0)

    def put(self, job: Job, trial: TraceRow) -> None:
        """Write one trial of a job. An existing row with the same schedule and status stays."""
        self.put_all(job, [trial])

    def put_all(self, job: Job, trials: Sequence[TraceRow]) -> None:
        """Write trials of a job in one append, each like `put`."""
        fresh = []
        key = job.key
        for row in (row_of(job, trial, key) for trial in trials):
            known = self._journal.rows.get((key, row["trial"]))
            if known is not None:
                if (known["schedule"], known["status"]) == (row["schedule"], row["status"]):
                    continue
                self._cut(key, row["trial"])
            fresh.append(row)
        self._journal.add(*fresh)
        for row in fresh:
            self._note(row)

    def cut(self, job: Job, trials: int) -> None:
        """Drop the rows of a job after its first `trials` trials."""
        self._cut(job.key, trials)

    def _rows(self, key: str) -> list[dict[str, Any]]:
        return [self._journal.rows[key, trial] for trial in sorted(self._trials.get(key, ()))]

    def _note(self, row: dict[str, Any]) -> None:
        self._trials.setdefault(row["job"], set()).add(row["trial"])
        self._keys.setdefault(tuple(row[name] for name in SLOT), set()).add(row["job"])

    def _cut(self, key: str, trials: int) -> None:
        """Drop the rows of the job with this key from trial number `trials` on, also in the file."""
        if stale := {trial for trial in self._trials.get(key, ()) if trial >= trials}:
            self._journal.drop({(key, trial) for trial in stale})
            self._trials[key] -= stale


def _check(row: dict[str, Any]) -> None:
    """Check that a row is a trial, because its fields are used long after it is read. KeyError or TypeError if not."""
    missing = [name for name in FIELDS if name not in row]
    if missing:
        raise KeyError(missing[0])
    if type(row["trial"]) is not int or not isinstance(row["status"], str):
        raise TypeError(f"a row has trial {row['trial']!r}, status {row['status']!r}")


def row_of(job: Job, trial: TraceRow, key: str) -> dict[str, Any]:
    """Return a trial of the job with this key as a row of JSON values with the keys `FIELDS`."""
    seconds = trial.seconds if trial.seconds != float("inf") else None
    rest = (trial.trial, trial.elapsed_s, trial.schedule, seconds, trial.status, trial.evaluations)
    return dict(zip(FIELDS, (*job.slot, *rest, job.fingerprint, key), strict=True))
