"""Journal of the searches of our compiler and of TVM: each is recorded when it ends."""

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
"""Number of last lines of the log that an error message quotes."""


class Stopped(RuntimeError):
    """Raised if a program failed or exceeded its time limit; the text has the end of the program's log."""


def run_process(command: Sequence[str], log: Path, limit_s: float, variables: Mapping[str, str] | None = None) -> None:
    """Run a program in its own process group, with its output in the file `log`, which is overwritten.

    `variables` is the program's whole environment, by default ours. The group is killed when the program ends, after `limit_s`
    seconds, and on any exception. Raise Stopped if it fails or takes too long, OSError if it cannot be started.
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
    """Description of one search, which is also its key: a search with the same plan is not made again."""

    system: str
    """`ours` or `tvm`."""
    operator: str
    trials: int
    seed: int
    threads: int
    """Number of threads on which the kernels run."""
    device: str
    version: str
    """Version of TVM, or digest of our code, with all other settings that the result depends on."""

    @property
    def key(self) -> str:
        """Hash of the plan, sixteen hexadecimal digits."""
        return short_hash(dataclasses.asdict(self))

    @property
    def label(self) -> str:
        """Name of the search among the searches of one operator."""
        return f"{self.system}@{self.trials} seed {self.seed}"


@dataclass(frozen=True)
class Run:
    """Result of a finished search; times are seconds of wall time, except `best_s`."""

    plan: Plan
    startup_s: float
    """Time until the search could begin: imports, loading of compiled functions, start of the processes that build and time."""
    tuning_s: float
    """Time of the search, with all building and measuring but without `waited_s`."""
    waited_s: float | None
    """Time spent waiting for the machine's timing lock; None if it is unknown and part of `tuning_s`."""
    best_s: float
    """Seconds of the best kernel, as the system that found it measured it."""
    tried: int
    valid: int
    """Number of candidates that ran without error."""
    product: str
    """The best kernel: our schedule, or the path of TVM's module relative to the folder of the searches."""
    conditions: dict[str, Any] = field(default_factory=dict)


def run_of(row: Mapping[str, Any]) -> Run:
    """Read a finished search from a row of the journal; raise ValueError if the row is invalid."""
    try:
        return Run(**{**row, "plan": Plan(**row["plan"])})
    except (KeyError, TypeError) as error:
        raise ValueError(f"no run of a peer: {str(row)[:100]} ({error})") from error


class Runs:
    """Finished searches in a folder: rows in `runs.jsonl`, and TVM's compiled modules next to it."""

    def __init__(self, folder: Path) -> None:
        """Read the rows; raise ValueError for an invalid row, or if another process writes to the file."""
        self.folder = folder
        self.journal = Journal(folder / "runs.jsonl", (), finite=True)
        self._runs = {run.plan.key: run for run in map(run_of, self.journal)}

    def get(self, plan: Plan) -> Run | None:
        """Return the finished search of a plan; None if there is none, or if TVM's module is gone."""
        run = self._runs.get(plan.key)
        if run is None or (plan.system == TVM and not (self.folder / run.product).exists()):
            return None
        return run

    def put(self, run: Run) -> Run:
        """Record a finished search and return it."""
        self.journal.add(dataclasses.asdict(run))
        self._runs[run.plan.key] = run
        return run
