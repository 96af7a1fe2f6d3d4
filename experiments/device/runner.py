"""Running stages, each in its own process with its share of the time, so that a stage that crashes ends no other stage."""

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
"""Most seconds at the end of a stage's share to finish begun work, before it is killed."""
RESERVE = 4.0
"""Seconds kept at the end for the summary."""


@dataclass(frozen=True)
class Stage:
    """One stage: `target` is `module:function`, a function from a Context to a dict."""

    name: str
    target: str
    weight: float
    """Weight of the stage's share of the remaining time when it starts, relative to the stages after it."""
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
    """Functions that Numba compiled in the stage's process, which the preparation should have done."""


def run_stages(stages: Sequence[Stage], context: Context, budget: float, ended: Callable[[list[Outcome]], None]) -> list[Outcome]:
    """Run stages in order within `budget` seconds; `ended` is called after each with all outcomes so far."""
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
    """Run one stage and return its outcome; a stage that crashes is restarted with the remaining time and resumes."""
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
    """(status, answer) of the stage run in a child process."""
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
