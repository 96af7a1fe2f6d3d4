"""Alternating times of one operator in all libraries: each library has its own process, and only one works at a time."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.runs.settings import ROOT
from experiments.benches.fused.process import OURS
from gensor_gym.foreign import parse_object
from gensor_gym.hardware.cpuinfo import THREADS

CALLED, INTO = "called", "into"
FUSED = "experiments.benches.fused.process"
"""Module of the process for fused operators; other modules answer the same requests about other computations."""
SMALL = 20e-6
"""Seconds of our call below which existing outputs are timed as well, because allocating an output takes a visible share."""
PAUSE = 10e-3
"""Pause in seconds between turns; meanwhile, threads of the previous side stop spinning for work."""
TICKS = os.sysconf("SC_CLK_TCK")
LEAST_ROUNDS = 5
"""Number of rounds that are timed however long they take."""


class Lost(RuntimeError):
    """Raised if a process fails or takes too long; the message says why."""


class Side:
    """A process of one library, which works on a request and otherwise waits for the next."""

    def __init__(self, name: str, threads: int, cache: Path, module: str = FUSED) -> None:
        """Start `module` as a process; `cache` is the folder for Inductor's compiled code."""
        variables = {
            **os.environ, THREADS: str(threads), "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads),
            "TORCHINDUCTOR_CACHE_DIR": str(cache.absolute()), "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        }  # fmt: skip
        self.name, self._log = name, tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, name], start_new_session=True, env=variables,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, bufsize=1,
        )  # fmt: skip

    def ask(self, row: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request, wait for its answer and return it; Lost if the answer is late or an error."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(row) + "\n")
        except OSError as error:
            raise Lost(f"{self.name} ended: {self._last()}") from error
        return self.hear(seconds)

    def hear(self, seconds: float) -> dict[str, Any]:
        """Wait for the next answer and return it; Lost if it is late or an error."""
        stream = self._process.stdout
        assert stream is not None
        if not select.select([stream], [], [], seconds)[0]:
            raise Lost(f"{self.name} took more than {seconds:g} s")
        if not (line := stream.readline()):
            raise Lost(f"{self.name} ended: {self._last()}")
        answer = parse_object(line)
        if "error" in answer:
            raise Lost(f"{self.name}: {answer['error']}")
        return answer

    def worked(self) -> float:
        """Processor seconds of all threads of the process so far; 0 if the system does not report them."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / TICKS

    def close(self) -> None:
        """Kill the process and all processes that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            with contextlib.suppress(OSError):  # unsent data
                stream.close()  # type: ignore[union-attr]

    def _last(self) -> str:
        """Wait for the end of the process and return the last line of its standard error."""
        self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"


def prepared(sides: dict[str, Side], asked: Mapping[str, Any], limit: float) -> tuple[dict[str, Any], dict[str, str]]:
    """Let each side prepare alone; return (answers by side, reason by peer that failed) and remove failed peers from `sides`.

    Raise Lost if our own side fails.
    """
    answers, missing = {}, {}
    for side in sides.values():
        with contextlib.suppress(Lost):  # the request below raises it again
            side.hear(limit)
    for name, side in list(sides.items()):
        try:
            answers[name] = side.ask(asked, limit)
        except Lost as error:
            if name == OURS:
                raise
            missing[name] = str(error)
            del sides[name]
            side.close()
    return answers, missing


def raced(
    names: Sequence[str], asked: Mapping[str, Any], rounds: int, limit: float, cache: Path, module: str = FUSED,
    enough: float = math.inf,
) -> dict[str, Any]:  # fmt: skip
    """Time all `names` on one request; return times, `answers` by side, `out_of_bounds` faults, and reasons for `missing` peers.

    Raise Lost if our side fails, takes too long or returns wrong outputs.
    """
    sides: dict[str, Side] = {}
    try:
        for name in names:
            sides[name] = Side(name, asked["threads"], cache, module)
        answers, missing = prepared(sides, asked, limit)
        ways = {name: answer.pop("ways") for name, answer in answers.items()}
        found = timed(sides, ways, rounds, limit, enough)
    finally:
        for side in sides.values():
            side.close()
    wrong = {name: answer.pop("wrong") for name, answer in answers.items()}
    if wrong[OURS]:
        raise Lost(f"our outputs are wrong: {wrong[OURS]}")
    faults = {name: said for name, said in wrong.items() if said}
    return {**found, "answers": answers, "missing": missing, "out_of_bounds": faults}


def timed(
    sides: Mapping[str, Side], ways: Mapping[str, Sequence[str]], rounds: int, limit: float, enough: float = math.inf
) -> dict[str, Any]:
    """Time every way in every round; return `samples` {side: {way: [seconds]}} and `waiting_busy`, the load of waiting sides.

    The load is processor seconds per second. Each round begins with another side. After `enough` seconds no round begins except
    the first LEAST_ROUNDS. Ways into existing outputs are timed if our call takes less than SMALL.
    """
    first = sides[OURS].ask({"way": CALLED}, limit)["seconds"]
    chosen = {name: [way for way in ways[name] if first < SMALL or not way.startswith(INTO)] for name in sides}
    samples: dict[str, dict[str, list[float]]] = {name: {way: [] for way in found} for name, found in chosen.items()}
    order, busy, whole = list(sides), 0.0, 0.0
    for number in range(rounds):
        if number >= LEAST_ROUNDS and whole > enough:
            break
        for place in range(len(order)):
            name = order[(number + place) % len(order)]
            time.sleep(PAUSE)
            others = [side for other, side in sides.items() if other != name]
            before, begin = sum(side.worked() for side in others), time.perf_counter()
            for way in chosen[name]:
                samples[name][way].append(sides[name].ask({"way": way}, limit)["seconds"])
            busy += sum(side.worked() for side in others) - before
            whole += time.perf_counter() - begin
    return {"samples": samples, "waiting_busy": busy / whole}
