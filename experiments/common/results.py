"""The file of trials: one JSON line each, appended as it happens; what was written is never lost and never doubled."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.common.settings import Job
from gensor_gym.measure.session import TraceRow

FIELDS = (
    "operator", "hardware", "backend", "strategy", "seed", "trial", "elapsed_s", "schedule", "seconds", "status",
    "evaluations", "fingerprint", "job",
)  # fmt: skip
"""Of every line. `seconds` is null unless the status is OK; `job` names the configuration the trial belongs to."""
SLOT = ("operator", "hardware", "backend", "strategy", "seed")
"""Those that make up `Job.slot`."""


class Results:
    """The rows of results.jsonl.

    A line is one write to the end of the file, so a killed process leaves whole lines and at most one torn at the end,
    which is dropped. A search that is made again finds its rows here: a trial that comes out the same is left as it is.
    """

    def __init__(self, path: Path) -> None:
        """Read what there is."""
        self.path = path
        self._rows: dict[str, dict[int, dict[str, Any]]] = {}
        self._keys: dict[tuple, set[str]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else [""]
        for line in lines[:-1]:
            self._take(json.loads(line))
        if lines[-1] or len(lines) - 1 != sum(map(len, self._rows.values())):
            self._write_all()

    def rows(self, job: Job) -> list[dict[str, Any]]:
        """The trials of a job in order."""
        found = self._rows.get(job.key, {})
        return [found[trial] for trial in sorted(found)]

    def check(self, job: Job) -> None:
        """ValueError where trials of this slot were made under another fingerprint of the task, unless it has none here."""
        if not job.fingerprint:
            return
        rows = (row for key in self._keys.get(job.slot, ()) for row in self._rows.get(key, {}).values())
        if others := {row["fingerprint"] for row in rows} - {job.fingerprint}:
            raise ValueError(
                f"{self.path} holds results of {job.operator} by {job.strategy} under fingerprint {', '.join(sorted(others))}, "
                f"here it is {job.fingerprint}: they do not compare; name another folder with output=..."
            )

    def keep_only(self, job: Job) -> None:
        """Drop rows of an earlier version of the job: the same slot, other code or hyperparameters."""
        stale = self._keys.get(job.slot, set()) - {job.key}
        self._drop([(key, trial) for key in stale for trial in self._rows.get(key, {})])

    def put(self, job: Job, trial: TraceRow) -> None:
        """Write one trial. A row that is there with the same schedule and status stays."""
        self.put_all(job, [trial])

    def put_all(self, job: Job, trials: Sequence[TraceRow]) -> None:
        """Write trials in one piece, as `put` does each."""
        fresh = []
        key = job.key
        for row in (row_of(job, trial, key) for trial in trials):
            known = self._rows.get(key, {}).get(row["trial"])
            if known is not None:
                if (known["schedule"], known["status"]) == (row["schedule"], row["status"]):
                    continue
                self._drop([(key, at) for at in self._rows[key] if at >= row["trial"]])
            self._take(row)
            fresh.append(row)
        self._append(fresh)

    def cut(self, job: Job, trials: int) -> None:
        """Drop rows of a job beyond the trials that its search made."""
        self._drop([(job.key, at) for at in self._rows.get(job.key, {}) if at >= trials])

    def _take(self, row: dict[str, Any]) -> None:
        """Into memory."""
        self._rows.setdefault(row["job"], {})[row["trial"]] = row
        self._keys.setdefault(tuple(row[name] for name in SLOT), set()).add(row["job"])

    def _drop(self, places: list[tuple[str, int]]) -> None:
        """Forget rows (job, trial), in the file as well."""
        if places:
            for key, trial in places:
                del self._rows[key][trial]
            self._write_all()

    def _append(self, rows: list[dict[str, Any]]) -> None:
        """Lines in one write: the operating system holds them when this returns, and outlives this process."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            left = memoryview("".join(map(_line, rows)).encode())
            while left:
                left = left[os.write(descriptor, left) :]
        finally:
            os.close(descriptor)

    def _write_all(self) -> None:
        """Replace the file at once."""
        write_text(self.path, "".join(_line(row) for rows in self._rows.values() for row in rows.values()))


def row_of(job: Job, trial: TraceRow, key: str) -> dict[str, Any]:
    """A trial of the job with that key as values of JSON; see FIELDS."""
    seconds = trial.seconds if trial.seconds != float("inf") else None
    rest = (trial.trial, trial.elapsed_s, trial.schedule, seconds, trial.status, trial.evaluations)
    return dict(zip(FIELDS, (*job.slot, *rest, job.fingerprint, key), strict=True))


def whole(path: Path, write: Callable[[Path], object]) -> None:
    """Have `write` write a file so that a reader, or a crash, sees all of it or what was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    os.close(descriptor)
    try:
        write(Path(name))
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file as a whole."""
    whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_summary(folder: Path, summary: Mapping[str, object], page: str) -> None:
    """Write what a study found: summary.json, and its page summary.md."""
    write_text(folder / "summary.json", json.dumps(summary, indent=1, default=str))
    write_text(folder / "summary.md", page)


def _line(row: dict[str, Any]) -> str:
    """One line of the file."""
    return json.dumps(row, allow_nan=False) + "\n"
