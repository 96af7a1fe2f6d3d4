"""Compile our own code while kernels of the archive are timed: `python -m experiments.device.prepare all|PART MACHINE`.

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
"""The word for all parts, and its time limit in seconds."""
TRIALS = 6
"""Trials of a strategy's search on the model, enough to learn from a measurement."""
_WALKS = {"walkers": 2, "steps": 4, "refiners": 1, "refine_steps": 4, "descents": 2}
"""Small settings of the strategies that walk the graph."""


def _graph(machine: str, space: str = "extended") -> ConstructionGraph:
    return ConstructionGraph(SMALL, machine, space)


FIRST: dict[str, Callable[[str], object]] = {
    "legality": lambda machine: _rules(_graph(machine)),
    "model": lambda machine: (graph := _graph(machine)).latency(graph.initial()),
    "model of rows": lambda machine: _of_rows(_graph(machine)),
    "walk": lambda machine: _graph(machine).random_schedule(np.random.default_rng(0), 4),
    "enumeration": lambda machine: next(_graph(machine, "compact").enumerate(256)),
}
"""Part of the first wave -> function that compiles the part; walks call the rules for writable rows."""


def _rules(graph: ConstructionGraph) -> None:
    """Compile the rules for a schedule with a read-only row."""
    graph.is_legal(graph.initial())
    graph.action_mask(graph.initial())
    graph.transition(graph.initial(), 1)


def _of_rows(graph: ConstructionGraph) -> None:
    """Compile the model and the rules for writable rows."""
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
    """Run the steps of stages `correctness` and `operators` that need no device."""
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
    """Waves of parts by name. Each part is a function of the machine's name; every wave needs the waves before it."""
    strategies = read_experiment(adaptive.EXPERIMENT).strategies.items()
    searches = {f"search {name}": partial(_search, of, given) for name, (of, given) in strategies}
    learned = {
        f"construct {name}": partial(_construct, of, parameters=given) for name, (of, given) in strategies if "markov" not in of
    }
    walks = {name: partial(_construct, name, parameters=_WALKS) for name in ("markov", "markov_ext")}
    return [FIRST, {**walks, **learned}, {"environment": _environment, "stages": _stages, **searches}]


def prepare(machine: str, limit: float) -> dict[str, str]:
    """Compile all parts within `limit` seconds; return the end of the output of each part that failed.

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
    """Compile one part in a process of its own; return why it failed, or an empty string.

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
    """Let processes write Numba's cache one at a time, function by function.

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
    """Run one part, or all parts if its name is ALL."""
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
