"""Benchmark of the clock of C sources: trials per second by it, and of the same programs by clocks in the kernel's process.

`outside` is the clock of sources (`measure/written/clocked.py`). `inside` is what sources would have otherwise: a new worker for
each, whose clock is in the kernel's process, with the check for kept results. `shared` is the clock of generated kernels, in a
worker that runs one after another. Each program is compiled, verified and timed once by each, alternately. Nothing is cached.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from statistics import median

import numpy as np
from omegaconf import DictConfig

from experiments.benches.lines import Lines, Steal, empty_cache, in_turn, machine
from experiments.comparison.summary import interval
from gensor_gym import hardware, operators
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.native import cpu_backend, make_kernel
from gensor_gym.measure.workers.process import WorkerProcess
from gensor_gym.measure.written.compiling import build_written
from gensor_gym.measure.written.trials import WrittenTrials
from gensor_gym.operators.types import Operator

SHARED, INSIDE, OUTSIDE = "shared", "inside", "outside"


def run(config: DictConfig, emit: Lines) -> None:
    """Measure random programs of each operator by the three clocks; emit a line for each operator."""
    hw, settings = hardware.get("host"), config.clocks
    emit(kind="machine", compiler=find_compiler().version, **machine())
    for text in settings.operators:
        op, rng = operators.parse(text), np.random.default_rng(config.seed)
        with empty_cache():
            _compare(op, _programs(op, hw, settings.trials + 1, rng), hw, emit)


def _programs(op: Operator, hw: Hardware, count: int, rng: np.random.Generator) -> list[Kernel]:
    """Return distinct generated kernels of random schedules."""
    graph, found = ConstructionGraph(op, hw, "extended"), dict[str, Kernel]()
    while len(found) < count:
        made = make_kernel(op, graph.random_schedule(rng), hw)
        if isinstance(made, Kernel):
            found[made.digest] = made
    return list(found.values())


def _compare(op: Operator, kernels: list[Kernel], hw: Hardware, emit: Lines) -> None:
    """Measure each kernel by every clock; the first only starts the workers and does not count."""
    worker = WorkerProcess(cpu_backend().name, restart_after=1)
    with closing(cpu_backend()) as plain, closing(cpu_backend(worker=worker)) as own, closing(WrittenTrials(hw)) as trials:
        found: dict[str, list[Measurement]] = {SHARED: [], INSIDE: [], OUTSIDE: []}
        ways = {
            SHARED: lambda kernel: found[SHARED].append(plain.trial(plain.compile([kernel])[0], hw)),
            INSIDE: lambda kernel: found[INSIDE].append(own.trial(build_written(kernel), hw, unseen=True)),
            OUTSIDE: lambda kernel: found[OUTSIDE].append(trials.measure(kernel, 0)),
        }
        in_turn(ways, kernels[:1])
        steal, seconds = Steal(), in_turn(ways, kernels[1:])
    last = np.array(seconds[OUTSIDE])
    emit(
        kind="clocks", operator=str(op), threads=hw.units, trials=len(last), stolen=steal.share(),
        trials_per_second={name: len(s) / sum(s) for name, s in seconds.items()},
        trial_s={name: median(s) for name, s in seconds.items()},
        kernel_s={name: median(m.seconds for m in of[1:]) for name, of in found.items()},
        statuses={name: dict(Counter(m.status for m in of[1:])) for name, of in found.items()},
        over={name: interval((last / np.array(seconds[name])).tolist()) for name in (SHARED, INSIDE)},
    )  # fmt: skip
