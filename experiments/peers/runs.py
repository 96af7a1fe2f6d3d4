"""Runs of either system: one search each, kept as a JSON line as soon as it is done."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.common.settings import short_hash

OURS, TVM = "ours", "tvm"


@dataclass(frozen=True)
class Plan:
    """What identifies a run: the same plan is run once."""

    system: str
    """`ours` or `tvm`."""
    operator: str
    trials: int
    seed: int
    threads: int
    """Of kernels."""
    device: str
    version: str
    """Of TVM, or the digest of our code; with everything else that the outcome depends on."""

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
    """For the machine's timing lock; None where that is not known and part of `tuning_s`."""
    best_s: float
    """Latency of the best kernel as its own system measured it."""
    tried: int
    valid: int
    """Candidates that ran."""
    product: str
    """Our schedule, or the file of TVM's module within the folder of the runs."""
    conditions: dict[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """As JSON."""
        return json.dumps(dataclasses.asdict(self), allow_nan=False)


def run_of(line: str) -> Run:
    """A run from its line; ValueError for a line that is none."""
    try:
        values = json.loads(line)
        return Run(**{**values, "plan": Plan(**values["plan"])})
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"no run of a peer: {line[:100]!r} ({error})") from error


class Runs:
    """The runs in a folder: `runs.jsonl`, and TVM's modules beside it."""

    def __init__(self, folder: Path) -> None:
        """Read what is there; a line torn by a kill at the end is dropped. ValueError for a line that is no run."""
        self.folder = folder
        self.path = folder / "runs.jsonl"
        self._runs: dict[str, Run] = {}
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        whole, newline, torn = text.rpartition("\n")
        if torn:
            os.truncate(self.path, len((whole + newline).encode()))
        for line in filter(None, whole.split("\n")):
            run = run_of(line)
            self._runs[run.plan.key] = run

    def get(self, plan: Plan) -> Run | None:
        """The run of a plan, if it was made and its module is still there."""
        run = self._runs.get(plan.key)
        if run is None or (plan.system == TVM and not (self.folder / run.product).exists()):
            return None
        return run

    def put(self, run: Run) -> Run:
        """Keep a run: its line is with the operating system when this returns."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(run.line + "\n")
        self._runs[run.plan.key] = run
        return run
