"""Compile our own Python code with Numba while other kernels are timed: `python -m experiments.device.prepare all|PART MACHINE`.

Numba compiles rules, model, walks and policies at their first call, which takes a minute or two in total, and caches them on disk
for every process. Parts are compiled in parallel, one process each, in waves: shared functions come in the first wave, so that
later waves find them in the cache. The last wave runs the stages' own steps and should compile nothing.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numba.core.caching import IndexDataCacheFile

from agents import get_strategy
from agents.optimizer import run as search
from experiments.device.stages import adaptive
from experiments.device.stages.families import drawn
from experiments.device.stages.operators import candidates
from experiments.device.table import read_experiment
from experiments.device.wheels import use_wheels
from experiments.device.work.makers import watch
from experiments.device.work.progress import say
from gensor_gym import hardware
from gensor_gym.construction import ConstructionGraph
from gensor_gym.fingerprint import fingerprint
from gensor_gym.measure.session import Budget, Session, Task

SMALL = "gemm(m=64, n=64, k=64)"
"""A small operator; compilation does not depend on the operator."""
ALL, MOST_SECONDS = "all", 300.0
"""Word that stands for all parts, and its time limit in seconds."""
TRIALS = 6
"""Number of trials of a search on the model, enough that the strategy learns from a measurement."""
_WALKS = {"walkers": 2, "steps": 4, "refiners": 1, "refine_steps": 4, "descents": 2}
"""Small settings for strategies that walk the graph, enough that all of their code is compiled."""


def _graph(machine: str, space: str = "extended") -> ConstructionGraph:
    return ConstructionGraph(SMALL, machine, space)


FIRST: dict[str, Callable[[str], object]] = {
    "legality": lambda machine: _rules(_graph(machine)),
    "model": lambda machine: (graph := _graph(machine)).latency(graph.initial()),
    "model of rows": lambda machine: _of_rows(_graph(machine)),
    "walk": lambda machine: _graph(machine).random_schedule(np.random.default_rng(0), 4),
    "enumeration": lambda machine: next(_graph(machine, "compact").enumerate(256)),
}
"""Part of the first wave -> function of the machine's name whose calls compile the part."""


def _rules(graph: ConstructionGraph) -> None:
    """Call the construction rules on one schedule, so that Numba compiles them for its array, which is read-only."""
    graph.is_legal(graph.initial())
    graph.action_mask(graph.initial())
    graph.transition(graph.initial(), 1)


def _of_rows(graph: ConstructionGraph) -> None:
    """Call model and rules on an array of several schedules, so that Numba compiles them for writable arrays."""
    rows = np.stack([graph.initial().row.copy()] * 2)
    graph.latencies(rows)
    graph.fits(rows)


def _construct(name: str, machine: str, parameters: Mapping[str, object]) -> None:
    strategy = get_strategy(name, **parameters)
    if construct := getattr(strategy, "construct", None):
        construct(_graph(machine, strategy.space), np.random.default_rng(0))


def _search(name: str, parameters: Mapping[str, object], machine: str) -> None:
    strategy = get_strategy(name, **parameters)
    task = Task.of(SMALL, machine, "analytic", strategy.space)
    fingerprint(task.graph())
    search(strategy, Session(task, Budget(trials=TRIALS)), 0)


def _stages(machine: str) -> None:
    """Run the steps of stages `correctness` and `operators` that need no device, so that Numba compiles what they call."""
    graph = _graph(machine)
    candidates(graph.operator, graph.hardware, 0)
    drawn(SMALL, machine, 0, 4)


def _environment(machine: str) -> None:
    for name in ("Construct", "Write"):
        task: dict[str, Any] = {"operator": SMALL, "hardware": machine, "backend": "analytic"}
        one = gymnasium.make(f"gensor_gym/{name}-v0", **task)
        one.reset(seed=0)
        one.step(0)
        several = gymnasium.make_vec(f"gensor_gym/{name}-v0", num_envs=2, **task)
        several.reset(seed=0)
        several.step(several.action_space.sample())


def waves() -> list[dict[str, Callable[[str], object]]]:
    """Return the waves in which our code is compiled: for each, the parts by name, as functions of the machine's name.

    Every wave needs the functions that the waves before it compiled.
    """
    strategies = read_experiment(adaptive.EXPERIMENT).strategies.items()
    searches = {f"search {name}": partial(_search, of, given) for name, (of, given) in strategies}
    learned = {
        f"construct {name}": partial(_construct, of, parameters=given) for name, (of, given) in strategies if "markov" not in of
    }
    walks = {name: partial(_construct, name, parameters=_WALKS) for name in ("markov", "markov_ext")}
    return [FIRST, {**walks, **learned}, {"environment": _environment, "stages": _stages, **searches}]


def prepare(machine: str, limit: float) -> dict[str, str]:
    """Compile all parts within `limit` seconds; return, by part, why it failed.

    A stage that needs a missing part compiles the part itself.
    """
    begin = time.monotonic()
    failed: dict[str, str] = {}
    for number, parts in enumerate(waves()):
        say(f"compiling our own code, {len(parts)} parts of wave {number + 1}: {', '.join(parts)}")
        with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)))) as threads:
            said = threads.map(lambda name: _run_part(name, machine, begin + limit), parts)
            failed |= {name: text for name, text in zip(parts, said, strict=True) if text}
    seconds = time.monotonic() - begin
    say(f"compiled in {seconds:.1f} s" + "".join(f"; {name}: {text}" for name, text in failed.items()))
    return failed


def _run_part(name: str, machine: str, until: float) -> str:
    """Compile one part in a process of its own until the time `until`; return why it failed, or an empty text.

    The process uses one thread, because other parts run on the other cores.
    """
    command = [sys.executable, "-m", "experiments.device.prepare", name, machine]
    environment, nowhere = {**os.environ, "GENSOR_GYM_THREADS": "1"}, subprocess.DEVNULL
    try:
        done = subprocess.run(
            command, stdin=nowhere, stdout=nowhere, stderr=subprocess.PIPE, env=environment, check=False,
            timeout=until - time.monotonic(), text=True, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "out of time"
    return (done.stderr.strip()[-300:] or f"ended by {done.returncode}") if done.returncode else ""


def save_in_turn() -> None:
    """Make processes write Numba's cache one after another, with a lock for each function.

    Numba reads a function's list of compiled signatures, adds one and writes the list back. Without a lock, one of two processes
    would lose its entry, or both would choose one file. The lock is separate from the locks of `graph.compiling.kept`.
    """
    save = IndexDataCacheFile.save

    def in_turn(self: IndexDataCacheFile, key: object, data: object) -> None:
        lock = Path(f"{self._index_path}.turn")
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            save(self, key, data)

    IndexDataCacheFile.save = in_turn  # type: ignore[method-assign]


def main(arguments: list[str]) -> None:
    """Compile the part of the command line, or all parts, for the machine that it names."""
    name, machine = arguments[:2]
    use_wheels()
    if name == ALL:
        prepare(machine, MOST_SECONDS)
        return
    save_in_turn()
    found = watch(loud=False)
    begin = time.monotonic()
    parts = {name: part for wave in waves() for name, part in wave.items()}
    parts[name](hardware.get(machine).name)
    print(f"{name}: {len(found.functions)} compiled, {time.monotonic() - begin:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
