"""Runner of the stages: each has its own process and its share of the time, so that a crash ends no other stage."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agents.runs.processes import run_group
from experiments.device.context import Context

DONE, FAILED, TIMEOUT, SKIPPED = "done", "failed", "timeout", "skipped"
ATTEMPTS = 3
GRACE = 12.0
"""Largest number of seconds at the end of a stage's time that it may use to finish begun work before it is killed."""
RESERVE = 4.0
"""Seconds kept at the end of a run for its summary."""


@dataclass(frozen=True)
class Stage:
    """One stage of a run on a GPU.

    `target` is its function as MODULE:FUNCTION, which takes a Context and returns the stage's results.
    """

    name: str
    target: str
    weight: float
    """Weight by which the remaining time is divided among this stage and the later ones when it starts."""
    least: float = 5.0
    """Seconds below which the stage is not worth starting."""


@dataclass(frozen=True)
class Outcome:
    """Result of a stage."""

    stage: str
    status: str
    seconds: float
    error: str = ""
    attempts: int = 0
    result: dict = field(default_factory=dict)
    compiled: int = 0
    """Number of functions that Numba compiled in the stage's process although they should have been prepared."""


def run_stages(stages: Sequence[Stage], context: Context, budget: float, ended: Callable[[list[Outcome]], None]) -> list[Outcome]:
    """Run the stages in order within `budget` seconds and return their outcomes; `ended` gets all outcomes so far after each."""
    finish = time.monotonic() + budget - RESERVE
    outcomes: list[Outcome] = []
    for number, stage in enumerate(stages):
        left = finish - time.monotonic()
        share = left * stage.weight / sum(later.weight for later in stages[number:])
        if share < stage.least:
            text = f"{share:.0f} s were left for it, it needs {stage.least:.0f}"
            outcomes.append(Outcome(stage.name, SKIPPED, 0.0, text))
        else:
            outcomes.append(run_stage(stage, context, share))
        ended(outcomes)
    return outcomes


def run_stage(stage: Stage, context: Context, share: float) -> Outcome:
    """Run one stage for at most `share` seconds and return its outcome.

    A stage that crashes is started again in the remaining time, and resumes.
    """
    begin = time.monotonic()
    outcome = Outcome(stage.name, SKIPPED, 0.0)
    for attempt in range(1, ATTEMPTS + 1):
        left = share - (time.monotonic() - begin)
        if attempt > 1 and left < stage.least:
            break
        status, said = _attempt(stage, context, left)
        error, result, compiled = said.get("error", ""), said.get("result", {}), said.get("compiled", 0)
        outcome = Outcome(stage.name, status, time.monotonic() - begin, error, attempt, result, compiled)
        if status != FAILED:
            break
    return outcome


def _attempt(stage: Stage, context: Context, seconds: float) -> tuple[str, dict]:
    """Run a stage in a child process for at most `seconds`; return (status, what the process answered)."""
    soft = seconds - min(GRACE, 0.25 * seconds)
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        told = json.dumps(replace(context, seconds=soft).to_json())
        command = [sys.executable, "-u", "-m", "experiments.device.child", stage.target, told, str(answer)]
        code = run_group(command, seconds)  # its measuring workers end themselves when it ends
        if code is None:
            return TIMEOUT, {"error": f"killed after {seconds:.0f} s; what it had written stands"}
        if answer.exists():
            said = json.loads(answer.read_text(encoding="utf-8"))
            return said["status"], said
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return FAILED, {"error": f"its process died: {how}"}
