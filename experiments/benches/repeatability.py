"""Benchmark of verdicts: do two runs that time the same kernels next to a busy process agree?

A run is a worker process that times all kernels, single-threaded, in rounds of random order, together with a fixed reference
kernel (the drift anchor), while another process keeps the last core busy. The second run also times kernels with five percent
more iterations, whose entry calls the kernel 21 times instead of 20. The verdict on kernels of separate runs is `quiet`, and
within a run it is `paired`. The other verdicts show the effect of rounds and of the anchor.
"""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager

import numpy as np
from omegaconf import DictConfig

from experiments.benches.lines import Lines, Steal, machine
from gensor_gym import hardware, operators
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.construction import ConstructionGraph
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.native import make_kernel
from gensor_gym.measure.stats.intervals import quiet_ratio_interval, ratio_interval
from gensor_gym.measure.stats.verdict import Verdict, verdict_of
from gensor_gym.measure.workers.builders import build_c
from gensor_gym.measure.workers.compare import ANCHOR
from gensor_gym.measure.workers.process import WorkerProcess
from gensor_gym.measure.workers.requests import CompareRequest

ITERATIONS = 20
"""Number of times an entry calls its kernel; one more call takes five percent more."""
WAYS = ("quiet", "paired", "anchored")
"""Ways to compare two runs: by low quantiles, round by round, and round by round after division by the anchor's time."""
TARGET = 0.9
"""Share of verdicts that must be right for the benchmark's target."""
_NEIGHBOUR = """
import os, sys
import numpy as np
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
a = np.random.default_rng(0).standard_normal((256, 256))
print(flush=True)
while os.getppid() == int(sys.argv[1]):
    a = np.tanh(a @ a)
"""


def run(config: DictConfig, emit: Lines) -> None:
    """Time kernels in two runs and compare them; emit a line for every pair, and counts of right verdicts with their targets."""
    settings = config.repeatability
    kernels = draw(settings.operator, dataclasses.replace(hardware.get("host"), units=1), settings.kernels, config.seed)
    same = {f"{i}": repeated(kernel, ITERATIONS) for i, kernel in enumerate(kernels)}
    longer = {f"{i} longer": repeated(kernel, ITERATIONS + 1) for i, kernel in enumerate(kernels[: settings.tries])}
    emit(kind="machine", operator=settings.operator, **machine())
    steal = Steal()
    with neighbour():
        first, second = (_run(found, settings.rounds, seed) for seed, found in enumerate((same, same | longer)))
    verdicts: dict[str, list[dict[str, Verdict]]] = {"same": [], "longer": [], "longer_same_run": []}
    for name in second:
        other = name.removesuffix(" longer")
        pairs = {"same": first} if name == other else {"longer": first, "longer_same_run": second}
        for kind, run_of_other in pairs.items():
            if name != ANCHOR:
                row = _pair(name, second, other, run_of_other, settings.tolerance)
                emit(kind=kind, kernel=other, seconds=float(np.median(second[name])) / ITERATIONS, **row)
                verdicts[kind].append({way: row[way]["verdict"] for way in row})
    emit(
        kind="verdicts", tolerance=settings.tolerance, rounds=settings.rounds, stolen=steal.share(),
        anchor=_pair(ANCHOR, second, ANCHOR, first, settings.tolerance)["quiet"],
        **{kind: _counts(found, Verdict.SAME if kind == "same" else Verdict.SLOWER) for kind, found in verdicts.items()},
    )  # fmt: skip


def draw(text: str, hw: Hardware, count: int, seed: int) -> list[Kernel]:
    """Return `count` different kernels of random schedules of the operator that `text` names."""
    op, rng = operators.parse(text), np.random.default_rng(seed)
    found: dict[str, Kernel] = {}
    graph = ConstructionGraph(op, hw, "extended")
    while len(found) < count:
        made = make_kernel(op, graph.random_schedule(rng), hw)
        if isinstance(made, Kernel):
            found[made.digest] = made
    return list(found.values())


def repeated(kernel: Kernel, calls: int) -> Kernel:
    """Return a kernel whose entry calls the entry of the given C kernel `calls` times."""
    entry = kernel.launches[0].entry
    arguments = "const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime"
    call = f"for (volatile int i = 0; i < {calls}; i++) {entry}(inputs, output, workspace, runtime);"
    source = f"{kernel.source}\nvoid repeated({arguments}) {{ {call} }}\n"
    return dataclasses.replace(kernel, source=source, launches=(Launch("repeated"),))


@contextmanager
def neighbour() -> Iterator[None]:
    """Keep the last core busy with another process within the `with` block."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _NEIGHBOUR, str(os.getpid())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # wait until it runs
            yield
        finally:
            process.kill()


def _run(kernels: dict[str, Kernel], rounds: int, seed: int) -> dict[str, list[float]]:
    with closing(WorkerProcess("cpu", stage_seconds={"time": 60.0})) as worker:
        built = tuple((name, build_c(kernel)) for name, kernel in kernels.items())
        return worker.ask(CompareRequest(built, 1, rounds, seed, anchor=True))


def _pair(name: str, run_a: dict, other: str, run_b: dict, tolerance: float) -> dict[str, dict]:
    a, b = np.array(run_a[name]), np.array(run_b[other])
    found = {
        "quiet": quiet_ratio_interval(a, b),
        "paired": ratio_interval(a, b),
        "anchored": ratio_interval(a / np.array(run_a[ANCHOR]), b / np.array(run_b[ANCHOR])),
    }
    return {
        way: {"ratio": ratio, "low": low, "high": high, "verdict": verdict_of(low, high, tolerance)}
        for way, (ratio, low, high) in found.items()
    }


def _counts(verdicts: list[dict[str, Verdict]], wanted: Verdict) -> dict[str, object]:
    """Return, for each way to compare two timings, how many verdicts equal `wanted`.

    Further entries: `of`, the number of pairs, `target`, how many have to be right, and `all`, the counts of every verdict.
    """
    ways = {way: Counter(found[way] for found in verdicts) for way in WAYS}
    found = {way: counts[wanted] for way, counts in ways.items()}
    return {**found, "of": len(verdicts), "target": math.ceil(TARGET * len(verdicts)), "all": ways}
