"""Benchmark of searches on a recorded table against live searches: same strategy, seed and number of trials, run in order.

Live, kernels are compiled into an empty cache, as for a task that nobody has searched before. On the table, the first search of
an operator, which reads its file, is timed separately. Neither time includes warming up (imports, compiled rules).
"""

from __future__ import annotations

import time
from contextlib import closing

import numpy as np
from omegaconf import DictConfig

from agents import get_strategy
from agents.optimizer import run as search
from experiments.benches.lines import Lines, empty_cache, machine, resolved
from experiments.common.statistics import geometric_mean
from gensor_gym import hardware
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend, get_backend
from gensor_gym.measure.records.backend import open_recorded
from gensor_gym.measure.session import Budget, Session, Task
from gensor_gym.operators.types import Operator

SPACE = "compact"
TARGET = 100.0


def run(config: DictConfig, emit: Lines) -> None:
    """Time each strategy on each operator, live and on the table; emit a line for each pair and one over all."""
    settings = config.replay
    names = hardware.recorded_names()
    if settings.machine not in names:
        raise ValueError(f"replay.machine {settings.machine!r}: tables are shipped of {', '.join(names) or 'no machine'}")
    hw = hardware.get(settings.machine)
    emit(kind="machine", **machine())
    ratios, firsts = [], []
    with closing(get_backend(hw.kind if hw.kind == "cpu" else "cuda", hw)) as live:
        for op in resolved(settings.operators):
            for name in settings.strategies:
                found = compare(op, hw, live, name, settings.trials, config.seed)
                emit(kind="search", operator=str(op), strategy=name, target=TARGET, **found)
                ratios.append(found["live_s"] / found["recorded_s"])
                firsts.append(found["live_s"] / found["recorded_first_s"])
    emit(
        kind="all", searches=len(ratios), live_over_recorded=geometric_mean(ratios), least=min(ratios),
        with_reading=geometric_mean(firsts), least_with_reading=min(firsts), target=TARGET,
    )  # fmt: skip


def compare(op: Operator, hw: Hardware, live: Backend, name: str, trials: int, seed: int) -> dict[str, float]:
    """Run one search live and on the recorded table; return the wall seconds and numbers of trials of both, and their ratio."""
    _timed(op, hw, "analytic", name, 2, seed)
    recorded = open_recorded("recorded", hw)
    first, count = _timed(op, hw, recorded, name, trials, seed)
    again, _ = _timed(op, hw, recorded, name, trials, seed)
    with empty_cache():
        wall, made = _timed(op, hw, live, name, trials, seed)
    return {
        "trials": made, "recorded_trials": count, "live_s": wall, "recorded_s": again, "recorded_first_s": first,
        "live_over_recorded": wall / again,
    }  # fmt: skip


def _timed(op: Operator, hw: Hardware, backend: str | Backend, name: str, trials: int, seed: int) -> tuple[float, int]:
    """Run one search and return (wall seconds, number of trials)."""
    session = Session(Task(op, hw, backend, SPACE), Budget(trials=trials))
    begin = time.perf_counter()
    search(get_strategy(name), session, int(np.uint32(seed)))
    return time.perf_counter() - begin, session.trials
