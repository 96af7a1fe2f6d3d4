"""Runs of our system and of TVM: one search each, recorded in a journal when it ends."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.runs.journal import Journal
from agents.runs.processes import run_group
from agents.runs.settings import short_hash

# Run another program with a log and a time limit; see `agents.runs.processes`.

LAST = 5
"""Number of last lines of the log that an error quotes."""


class Stopped(RuntimeError):
    """Raised if a program failed or exceeded its time limit; the text has the end of its log."""


def run_process(command: Sequence[str], log: Path, limit_s: float, variables: Mapping[str, str] | None = None) -> None:
    """Run a program in its own process group and write its output to `log`, which is overwritten.

    `variables` are its whole environment, by default ours. The group is killed when the program ends, after `limit_s` seconds,
    and on any exception. Raises Stopped, or OSError if the program cannot be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        code = run_group(command, limit_s, stdout=file, stderr=subprocess.STDOUT, env=variables)
    if code != 0:
        name = " ".join(Path(word).name for word in command[:4])
        how = f"took more than {limit_s:g} s" if code is None else f"ended with status {code}"
        raise Stopped(f"{name} {how}; its last words: {_last(log)}")


def _last(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return " | ".join(line.strip()[:300] for line in lines[-LAST:]) or "none"


OURS, TVM = "ours", "tvm"


@dataclass(frozen=True)
class Plan:
    """Description and key of a run; a plan that was run is not run again."""

    system: str
    """`ours` or `tvm`."""
    operator: str
    trials: int
    seed: int
    threads: int
    """Number of threads of the kernels."""
    device: str
    version: str
    """Version of TVM or digest of our code, and all other settings that the result depends on."""

    @property
    def key(self) -> str:
        """Hash of the plan, sixteen digits."""
        return short_hash(dataclasses.asdict(self))

    @property
    def label(self) -> str:
        """Name of the run among the kernels of one operator."""
        return f"{self.system}@{self.trials} seed {self.seed}"


@dataclass(frozen=True)
class Run:
    """A finished search. Times are seconds of wall time, except for `best_s`."""

    plan: Plan
    startup_s: float
    """Time until the search could begin: imports, loading of compiled functions, start of builder and runner."""
    tuning_s: float
    """Time of the search with all building and measuring, without `waited_s`."""
    waited_s: float | None
    """Time spent waiting for the machine's timing lock; None if it is unknown and part of `tuning_s`."""
    best_s: float
    """Seconds of the best kernel, as its own system measured it."""
    tried: int
    valid: int
    """Number of candidates that succeeded."""
    product: str
    """Our schedule, or the path of TVM's module relative to the folder of the runs."""
    conditions: dict[str, Any] = field(default_factory=dict)


def run_of(row: Mapping[str, Any]) -> Run:
    """Read a run from its row; ValueError if the row is invalid."""
    try:
        return Run(**{**row, "plan": Plan(**row["plan"])})
    except (KeyError, TypeError) as error:
        raise ValueError(f"no run of a peer: {str(row)[:100]} ({error})") from error


class Runs:
    """The runs in a folder, with rows in `runs.jsonl` and TVM's modules next to it."""

    def __init__(self, folder: Path) -> None:
        """Read the rows. ValueError for an invalid row, or if another process writes to the file."""
        self.folder = folder
        self.journal = Journal(folder / "runs.jsonl", (), finite=True)
        self._runs = {run.plan.key: run for run in map(run_of, self.journal)}

    def get(self, plan: Plan) -> Run | None:
        """The stored run of a plan; None if no run is stored, or if TVM's module is gone."""
        run = self._runs.get(plan.key)
        if run is None or (plan.system == TVM and not (self.folder / run.product).exists()):
            return None
        return run

    def put(self, run: Run) -> Run:
        """Record a run and return it."""
        self.journal.add(dataclasses.asdict(run))
        self._runs[run.plan.key] = run
        return run
