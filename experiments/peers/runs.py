"""Runs of either system: one search each, kept in a journal as soon as it is done."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.common.journal import Journal
from experiments.common.settings import short_hash

OURS, TVM = "ours", "tvm"


@dataclass(frozen=True)
class Plan:
    """Key of a run: the same plan is run once."""

    system: str
    """`ours` or `tvm`."""
    operator: str
    trials: int
    seed: int
    threads: int
    """Threads of kernels."""
    device: str
    version: str
    """Version of TVM, or the digest of our code, with everything else that the outcome depends on."""

    @property
    def key(self) -> str:
        """Sixteen digits that name it."""
        return short_hash(dataclasses.asdict(self))

    @property
    def label(self) -> str:
        """Its name among the kernels of one operator."""
        return f"{self.system}@{self.trials} seed {self.seed}"


@dataclass(frozen=True)
class Run:
    """A search that ended. Seconds of wall time."""

    plan: Plan
    startup_s: float
    """Until the search could begin: imports, compiled functions loaded, builder and runner started."""
    tuning_s: float
    """The search with all building and measuring, without `waited_s`."""
    waited_s: float | None
    """Seconds of waiting for the machine's timing lock; None if unknown and part of `tuning_s`."""
    best_s: float
    """Latency of the best kernel as its own system measured it."""
    tried: int
    valid: int
    """Candidates that ran."""
    product: str
    """Our schedule, or the file of TVM's module within the folder of the runs."""
    conditions: dict[str, Any] = field(default_factory=dict)


def run_of(row: Mapping[str, Any]) -> Run:
    """A run from its row; ValueError for a row that is none."""
    try:
        return Run(**{**row, "plan": Plan(**row["plan"])})
    except (KeyError, TypeError) as error:
        raise ValueError(f"no run of a peer: {str(row)[:100]} ({error})") from error


class Runs:
    """The runs in a folder: `runs.jsonl`, and TVM's modules next to it."""

    def __init__(self, folder: Path) -> None:
        """Read the file. ValueError for an invalid row, and if another process writes there."""
        self.folder = folder
        self.journal = Journal(folder / "runs.jsonl", (), finite=True)
        self._runs = {run.plan.key: run for run in map(run_of, self.journal)}

    def get(self, plan: Plan) -> Run | None:
        """The run of a plan, if it was made and its module is still there."""
        run = self._runs.get(plan.key)
        if run is None or (plan.system == TVM and not (self.folder / run.product).exists()):
            return None
        return run

    def put(self, run: Run) -> Run:
        """Keep a run."""
        self.journal.add(dataclasses.asdict(run))
        self._runs[run.plan.key] = run
        return run
