"""One operator in all libraries: a process each, all started at once, timed alternately, one at a time."""

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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.benches.fused.process import OURS
from experiments.common.settings import ROOT
from gensor_gym.foreign import parse_object
from gensor_gym.hardware.cpuinfo import THREADS

CALLED, INTO = "called", "into"
FUSED = "experiments.benches.fused.process"
"""The process of fused operators; others answer to the same requests."""
SMALL = 20e-6
"""Seconds of our call below which outputs that are there are timed as well: making one is a share that shows."""
PAUSE = 10e-3
"""Seconds between turns, for threads of the last one that still wait for work in a loop."""
TICKS = os.sysconf("SC_CLK_TCK")
LEAST_ROUNDS = 5
"""Rounds that are made at any cost in time."""


class Lost(RuntimeError):
    """A process failed or took too long; the text says why."""


class Side:
    """A process of one library, which works when it is asked and waits in a read else."""

    def __init__(self, name: str, threads: int, cache: Path, module: str = FUSED) -> None:
        """Start `module` as a process; `cache` holds Inductor's compiled code."""
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
        """Send a request and wait for its answer; Lost if there is none in time, or an error."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(row) + "\n")
        except OSError as error:
            raise Lost(f"{self.name} ended: {self._last()}") from error
        return self.hear(seconds)

    def hear(self, seconds: float) -> dict[str, Any]:
        """The next answer; see `ask`."""
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
        """Seconds of processor time so far, of all its threads; 0 if the system does not say."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / TICKS

    def close(self) -> None:
        """End it with all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            with contextlib.suppress(OSError):  # what was not sent yet
                stream.close()  # type: ignore[union-attr]

    def _last(self) -> str:
        """The last line that it wrote."""
        self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"


@contextlib.contextmanager
def started(names: Sequence[str], threads: int, cache: Path, module: str = FUSED) -> Iterator[dict[str, Side]]:
    """A process for each name, which end with the block."""
    sides: dict[str, Side] = {}
    try:
        for name in names:
            sides[name] = Side(name, threads, cache, module)
        yield sides
    finally:
        for side in sides.values():
            side.close()


def prepared(sides: dict[str, Side], asked: Mapping[str, Any], limit: float) -> tuple[dict[str, Any], dict[str, str]]:
    """(answers by side, why a peer has none): each prepares alone, and those that cannot are left out of `sides`.

    Lost if it is ours.
    """
    answers, missing = {}, {}
    for side in sides.values():
        with contextlib.suppress(Lost):  # it is asked next, which says so again
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
    """All of `names` on one request: the times, `answers` by side, `wrong` by side and way, and reasons for `missing` peers.

    Lost if ours failed, took too long or gave wrong outputs.
    """
    with started(names, asked["threads"], cache, module) as sides:
        answers, missing = prepared(sides, asked, limit)
        ways = {name: answer.pop("ways") for name, answer in answers.items()}
        found = timed(sides, ways, rounds, limit, enough)
    wrong = {name: answer.pop("wrong") for name, answer in answers.items()}
    if wrong[OURS]:
        raise Lost(f"our outputs are wrong: {wrong[OURS]}")
    faults = {name: said for name, said in wrong.items() if said}
    return {**found, "answers": answers, "missing": missing, "out_of_bounds": faults}


def timed(
    sides: Mapping[str, Side], ways: Mapping[str, Sequence[str]], rounds: int, limit: float, enough: float = math.inf
) -> dict[str, Any]:
    """Seconds of every way in every round, {side: {way: [..]}}, and how busy those were that waited.

    Each round begins with another side. After `enough` seconds no round begins any more but the first
    LEAST_ROUNDS. Outputs that are there are timed where our call takes less than SMALL.
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
