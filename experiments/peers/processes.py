"""Run another program with a log and a time limit; see `agents.runs.processes`."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from agents.runs.processes import run_group

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
    """The last lines of a log, joined in one line."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return " | ".join(line.strip()[:300] for line in lines[-LAST:]) or "none"
