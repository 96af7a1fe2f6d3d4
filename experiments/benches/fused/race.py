"""Race of libraries on one computation: each library has its own process (a side), and only one computes at a time."""

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO

import numpy as np

from agents.runs.calls import placed, seconds
from agents.runs.settings import ROOT
from experiments.benches.fused.narrowed import limits
from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.table import fused_operator
from gensor_gym.foreign import parse_object
from gensor_gym.hardware.cpuinfo import THREADS
from gensor_gym.measure.answers.fused import FusedDraw
from gensor_gym.operators.inputs import random_inputs

# One library's side of the comparison, in its own process: `python -m experiments.benches.fused.race SIDE`.
#
# Requests are lines of JSON on standard input, answered by lines on standard output. The first request describes the
# computation; every later request names a way to call it, which is then timed. Between requests the process waits in a read.

OURS = "ours"
SIDES = {
    OURS: "experiments.benches.fused.ours", "eager": "experiments.benches.fused.eager",
    "inductor": "experiments.benches.fused.inductor", "onnxruntime": "experiments.benches.fused.onnx_runtime",
}  # fmt: skip
"""Name of a library's process -> module that defines how it prepares a computation."""


@dataclass(frozen=True)
class Ways:
    """Calls of one library on given inputs, by the way of calling.

    `called` returns a new output and `into` fills an existing one. `called_inner` and `into_inner` leave out the overhead of
    torch.compile at every call. `facts` are further entries for the result row.
    """

    calls: dict[str, Callable[[], Any]]
    """Way of calling -> call that returns the output, or a sequence of outputs."""
    facts: dict[str, Any] = field(default_factory=dict)


def main(name: str) -> None:
    """Serve the fused operators of one library: read requests from standard input, one per line, until it ends."""
    module = import_module(SIDES[name])

    def prepare(asked: dict[str, Any]) -> tuple[Ways, dict[str, str]]:
        graph = fused_operator(asked["operator"])
        drawn = random_inputs(graph, np.random.default_rng(asked["seed"]))
        ways: Ways = module.prepare(graph, [placed(array, 0) for array in drawn], asked)
        return ways, wrong(graph, drawn, ways)

    serve(name, prepare)


def serve(name: str, prepare: Callable[[dict[str, Any]], tuple[Ways, dict[str, str]]]) -> None:
    """Answer requests on standard input about one library, one JSON line each, until it ends.

    The first request describes a computation: `prepare` returns the ways to call it and, by way, what is wrong with its outputs.
    Every later request names a way and is answered with the seconds of a call. What libraries print goes to standard error,
    because standard output carries the answers.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    _answer(answers, {"ready": name})
    if not (first := sys.stdin.readline()):
        return
    try:
        ways, faults = prepare(parse_object(first))
        _answer(answers, {"ways": list(ways.calls), "wrong": faults, **ways.facts})
    except Exception as error:
        _answer(answers, {"error": f"{type(error).__name__}: {error}"[:500]})
        raise
    for line in sys.stdin:
        _answer(answers, {"seconds": seconds(ways.calls[parse_object(line)["way"]])})


def wrong(graph: Dataflow, drawn: Sequence[np.ndarray], ways: Ways) -> dict[str, str]:
    """Check the outputs of every way of calling by the float64 evaluator's error bounds; return the faults by way, if any."""
    draw = FusedDraw(tuple(drawn), evaluate(graph, drawn))
    found = {}
    for way, call in ways.calls.items():
        outputs = arrays_of(call())
        shapes = [one.shape for one in outputs]
        if shapes != [value.shape for value in graph.outputs]:
            found[way] = f"outputs of shapes {shapes}, expected {[value.shape for value in graph.outputs]}"
        elif fault := draw.fault(outputs[0] if len(outputs) == 1 else outputs):
            found[way] = fault
    return found


def arrays_of(given: Any) -> list[np.ndarray]:
    """Return the outputs of a call to any library as a list of NumPy arrays."""
    several = given if isinstance(given, tuple | list) else (given,)
    return [np.asarray(one.float() if str(one.dtype) == "torch.bfloat16" else one) for one in several]


def _answer(answers: TextIO, row: dict[str, Any]) -> None:
    answers.write(json.dumps(row) + "\n")
    answers.flush()


CALLED, INTO = "called", "into"
FUSED = "experiments.benches.fused.race"
"""Module that the processes run for fused operators; other modules answer the same requests about other computations."""
SMALL = 20e-6
"""Seconds of our call below which filling an existing output is timed too: allocating one takes a visible share then."""
PAUSE = 10e-3
"""Pause in seconds between the turns of two libraries, so that the threads of the first stop spinning for work."""
TICKS = os.sysconf("SC_CLK_TCK")
LEAST_ROUNDS = 5
"""Number of rounds that are timed in any case, however long they take."""


class Lost(RuntimeError):
    """Raised if a library's process fails or takes too long; the message says why."""


class Side:
    """Process of one library, which answers one request at a time and otherwise waits."""

    def __init__(
        self, name: str, threads: int, cache: Path, module: str = FUSED, more: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Start the process; `module` is the module that it runs, and `cache` the folder for code that Inductor compiles.

        `more` are further environment variables.
        """
        variables = {
            **os.environ, THREADS: str(threads), "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads),
            "TORCHINDUCTOR_CACHE_DIR": str(cache.absolute()), "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))), **more,
        }  # fmt: skip
        self.name, self._log = name, tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, name], start_new_session=True, env=variables,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, bufsize=1,
        )  # fmt: skip

    def ask(self, row: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request, wait at most `seconds` for the answer and return it; raise Lost if it is late or an error."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(row) + "\n")
        except OSError as error:
            raise Lost(f"{self.name} ended: {self._last()}") from error
        return self.hear(seconds)

    def hear(self, seconds: float) -> dict[str, Any]:
        """Wait at most `seconds` for the next answer and return it; raise Lost if it is late or an error."""
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
        """Return the processor seconds that all threads of the process have used; 0 if the system does not report them."""
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
        self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"


def prepared(sides: dict[str, Side], asked: Mapping[str, Any], limit: float) -> tuple[dict[str, Any], dict[str, str]]:
    """Let each side (the process of a library) prepare the requested computation alone; return (answers, missing).

    `answers` are by side. `missing` says why each other library that failed is missing; it is removed from `sides`. Raise Lost
    if our own side fails.
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
    """Start a process (a side) for each library of `names`, time their calls in rounds, and stop them.

    Return what `timed` returns, the `answers` of each side, the wrong outputs of other libraries (`out_of_bounds`), and why some
    are `missing`. Raise Lost if our own side fails, takes too long or returns wrong outputs. If our kernels are limited to AVX2,
    other libraries are too.
    """
    sides: dict[str, Side] = {}
    try:
        for name in names:
            more = {} if name.partition("/")[0] == OURS else limits(name)
            sides[name] = Side(name, asked["threads"], cache, module, more)
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
    """Time every way of calling each library's process (`sides`) in interleaved rounds.

    Return `samples`, the seconds of every round as {side: {way: [seconds]}}, and `waiting_busy`, the processor seconds per second
    that waiting sides use. Each round begins with another side. After `enough` seconds no round begins, except the first
    `LEAST_ROUNDS`. Calls into existing outputs are timed only if our call takes less than `SMALL` seconds.
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


if __name__ == "__main__":
    main(sys.argv[1])
