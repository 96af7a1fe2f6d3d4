"""Benchmark of starts: the time from a new process to the end of its first episode, with and without cached compiled code.

Each start has its own process (`start_process`). Seconds are the process's processor time, imports included, without the time of
the compile server. The wall time, which grows with other load, is listed too. For each compiled function, its own compile time is
listed, without the functions that it calls.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

from omegaconf import DictConfig, OmegaConf

from experiments.benches.lines import Lines, machine
from gensor_gym.graph.compiling.notice import QUIET
from gensor_gym.locate import ROOT

COLD, WAITED, WARM = "cold", "waited", "warm"
"""Kinds of start: with an empty cache; also empty, but each function is compiled before it runs; with the cache filled so."""


def run(config: DictConfig, emit: Lines) -> None:
    """Start each environment with empty and filled caches of compiled code; emit a line for each start and each slow function."""
    settings = config.start
    emit(kind="machine", **machine())
    for name in settings.environments:
        arguments = OmegaConf.to_container(settings.of[name])
        with tempfile.TemporaryDirectory(prefix="gensor-gym-") as folder:
            for cache in (COLD, WAITED, WARM) if settings.cold else (WARM,):
                where = f"{folder}/{'empty' if cache == COLD else 'filled'}" if settings.cold else None
                found = start_of(arguments, cache, where, settings.limit_s)
                functions = found.pop("functions")
                emit(kind="start", environment=name, cache=cache, compiled=len(functions), **found)
                for row in functions[: settings.functions]:
                    emit(kind="function", environment=name, cache=cache, **row)


def start_of(arguments: Any, cache: str, folder: str | None, limit_s: float) -> dict[str, Any]:
    """Start an environment in a new process, play an episode, and return the times that the process prints.

    Compiled code is kept in `folder`, or in the default folder if `folder` is None. `cache` is the kind of start. Raise
    ValueError if the start fails.
    """
    own = {"NUMBA_CACHE_DIR": folder} if folder is not None else {}
    environment = os.environ | own | {QUIET: "1", "PYTHONPATH": str(ROOT)}
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "experiments.benches.environment.start_process", json.dumps(arguments), cache],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False,
    )  # fmt: skip
    wall = time.perf_counter() - begin
    if done.returncode != 0:
        raise ValueError(f"start with {arguments} failed: {done.stderr.strip()[-2000:]}")
    return {**json.loads(done.stdout.splitlines()[-1]), "wall_s": wall}
