"""The file of trials: one JSON line each, appended as it happens; what was written is never lost and never doubled."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from experiments.settings import Job
from gensor_gym.fingerprint import fingerprint
from gensor_gym.measure.session import TraceRow

FIELDS = (
    "operator", "hardware", "backend", "strategy", "seed", "trial", "elapsed_s", "schedule", "seconds", "status",
    "evaluations", "fingerprint", "job",
)  # fmt: skip
"""Of every line. `seconds` is null unless the status is OK; `job` names the configuration the trial belongs to."""


class Results:
    """The rows of results.jsonl.

    A line is one write to the end of the file, so a killed process leaves whole lines and at most one torn at the end,
    which is dropped. A search that is made again finds its rows here: a trial that comes out the same is left as it is.
    """

    def __init__(self, path: Path) -> None:
        """Read what there is. ValueError when it was written under another fingerprint."""
        self.path = path
        self._rows: dict[tuple[str, int], dict[str, Any]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for line in text.split("\n")[:-1]:
            row = json.loads(line)
            self._rows[(row["job"], row["trial"])] = row
        others = {row["fingerprint"] for row in self._rows.values()} - {fingerprint()}
        if others:
            raise ValueError(
                f"{path} holds results of fingerprint {', '.join(sorted(others))}, this version has {fingerprint()}: "
                "they do not compare; name another folder with output=..."
            )
        if text and (not text.endswith("\n") or text.count("\n") != len(self._rows)):
            self._write_all()

    def rows(self, job: Job) -> list[dict[str, Any]]:
        """The trials of a job in order."""
        found = [row for (key, _), row in self._rows.items() if key == job.key]
        return sorted(found, key=lambda row: row["trial"])

    def keep_only(self, job: Job) -> None:
        """Drop rows of an earlier version of the job: the same slot, other code or hyperparameters."""
        names = ("operator", "hardware", "backend", "strategy", "seed")
        stale = [k for k, r in self._rows.items() if k[0] != job.key and tuple(r[n] for n in names) == job.slot]
        self._drop(stale)

    def put(self, job: Job, trial: TraceRow) -> None:
        """Write one trial. A row that is there with the same schedule and status stays."""
        row = row_of(job, trial)
        place = (job.key, trial.trial)
        known = self._rows.get(place)
        if known is not None:
            if (known["schedule"], known["status"]) == (row["schedule"], row["status"]):
                return
            self._drop([k for k in self._rows if k[0] == job.key and k[1] >= trial.trial])
        self._rows[place] = row
        self._append(row)

    def cut(self, job: Job, trials: int) -> None:
        """Drop rows of a job beyond the trials that its search made."""
        self._drop([k for k in self._rows if k[0] == job.key and k[1] >= trials])

    def _drop(self, places: list[tuple[str, int]]) -> None:
        """Forget rows, in the file as well."""
        if places:
            for place in places:
                del self._rows[place]
            self._write_all()

    def _append(self, row: dict[str, Any]) -> None:
        """One line in one write: the operating system holds it when this returns, and outlives this process."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, _line(row).encode())
        finally:
            os.close(descriptor)

    def _write_all(self) -> None:
        """Replace the file at once."""
        write_text(self.path, "".join(map(_line, self._rows.values())))


def row_of(job: Job, trial: TraceRow) -> dict[str, Any]:
    """A trial as values of JSON; see FIELDS."""
    seconds = trial.seconds if trial.seconds != float("inf") else None
    rest = (trial.trial, trial.elapsed_s, trial.schedule, seconds, trial.status, trial.evaluations)
    return dict(zip(FIELDS, (*job.slot, *rest, fingerprint(), job.key), strict=True))


def write_text(path: Path, text: str) -> None:
    """Write a file so that a reader, or a crash, sees all of it or what was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(name, 0o644)
    os.replace(name, path)


def _line(row: dict[str, Any]) -> str:
    """One line of the file."""
    return json.dumps(row, allow_nan=False) + "\n"
