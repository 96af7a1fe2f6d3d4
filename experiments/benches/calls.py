"""Calling a kernel as README does, `optimize(..).kernel(a, b)`, beside its time as measured: what the call adds.

In every round the kernel is measured anew by the backend, in its worker, and then called so many times in this process,
from Python, output allocated by the call.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from omegaconf import DictConfig

from agents import optimize
from agents.optimize import Result
from experiments.benches.lines import Lines, Steal, machine, spread
from gensor_gym import hardware, operators
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.measurement import Status


def run(config: DictConfig, emit: Lines) -> None:
    """A line for each operator."""
    settings, hw = config.calls, hardware.get("host")
    emit(kind="machine", threads=hw.units, **machine())
    for op in dict.fromkeys(operators.resolve(list(settings.operators))):
        found = optimize(op, hw, settings.strategy, settings.trials, config.seed)
        emit(kind="calls", operator=str(op), schedule=str(found.schedule), **_compared(found, settings, config.seed, hw))


def _compared(found: Result, settings: DictConfig, seed: int, hw: Hardware) -> dict[str, Any]:
    """Seconds as measured and as called, median and interval over the rounds, and what the call adds, round by round.

    RuntimeError where the kernel that was found fails when it is measured again.
    """
    op, backend, steal = found.task.operator, get_backend("cpu", hw), Steal()
    inputs = operators.random_inputs(op, np.random.default_rng(seed))
    rounds: list[tuple[float, float]] = []
    try:
        for _ in range(settings.rounds):
            (again,) = backend.measure(op, [found.schedule], hw)
            if again.status is not Status.OK:
                raise RuntimeError(f"{op}: measured again the kernel is {again.status.value}: {again.error}")
            rounds.append((again.seconds, _called(found, inputs, settings.calls)))
    finally:
        backend.close()
    measured, called = (list(values) for values in zip(*rounds, strict=True))
    added = spread([ours - theirs for theirs, ours in rounds])
    return {"measured": spread(measured), "called": spread(called), "added": added, "stolen": steal.share()}


def _called(found: Result, inputs: tuple[np.ndarray, ...], calls: int) -> float:
    """Seconds of a call, in the mean over `calls` of them, after one that is not counted."""
    found.kernel(*inputs)
    begin = time.perf_counter()
    for _ in range(calls):
        found.kernel(*inputs)
    return (time.perf_counter() - begin) / calls
