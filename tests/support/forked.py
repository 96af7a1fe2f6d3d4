"""Commands, each in a fork of one process that has imported what they use: what a fork takes more is the command's own.

`python -m tests.support.forked` reads lines of JSON, the words of a command each, and answers each with a line: its exit code,
what it wrote, and its memory.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from gensor_gym.locate import ROOT

PEAK, NOW = "VmHWM", "VmRSS"
LONGEST = 120
"""Seconds after which a fork is killed; its exit code is then -1."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    said: str
    """On the standard error; what it writes to the standard output goes nowhere."""
    grown: int
    """Bytes of resident memory at its peak, over those before it. Parts of libraries that it is the first to touch count."""


class Forks:
    """The process that forks, seen from the one that asks."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """It has begun."""
        self._process = process

    def run(self, words: Sequence[str]) -> Ended:
        """One command of `gensor`, to its end."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(list(words)), file=self._process.stdin, flush=True)
        return Ended(**json.loads(self._process.stdout.readline()))


@contextmanager
def forks(commands: Sequence[str]) -> Iterator[Forks]:
    """The process, with the modules of these commands."""
    command = [sys.executable, "-m", __name__, *commands]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Forks(process)


def memory(name: str) -> int:
    """Bytes of this process that the system names so."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


def _forked(words: Sequence[str]) -> dict[str, Any]:
    """Fork, have the fork run the command, and wait for what it says of itself."""
    with tempfile.NamedTemporaryFile() as answer, tempfile.TemporaryFile("w+", errors="replace") as said:
        if (child := os.fork()) == 0:
            signal.alarm(LONGEST)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(said.fileno(), 2)
            Path(answer.name).write_text(json.dumps(_here(words)))
            os._exit(0)  # nothing of what the parent has begun is ended here
        os.waitpid(child, 0)
        said.seek(0)  # a fork shares the place
        return {**json.loads(Path(answer.name).read_text() or '{"code": -1, "grown": -1}'), "said": said.read()}


def _here(words: Sequence[str]) -> dict[str, int]:
    """Run a command in this process; its exit code, and the memory that it took."""
    from experiments.entry import main

    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before, sys.argv = memory(NOW), ["gensor", *words]
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    return {"code": code, "grown": memory(PEAK) - before}


def _serve(commands: Sequence[str]) -> None:
    """Import, then answer until nobody asks any more."""
    from experiments.entry import COMMANDS

    for name in (*(COMMANDS[command].target.partition(":")[0] for command in commands), "sb3_contrib", "safetensors.torch"):
        import_module(name)
    for line in sys.stdin:
        print(json.dumps(_forked(json.loads(line))), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1:])
