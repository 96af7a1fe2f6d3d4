"""Benchmark of measuring: trials and episodes per second, the time of their parts, cost of isolation, and compile times.

The folder of compiled kernels is empty when the suite begins, so that every trial compiles its kernel.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from omegaconf import DictConfig

from experiments.benches.lines import Lines, Steal, calibration, empty_cache, in_turn, machine
from experiments.comparison.summary import interval
from gensor_gym import hardware, operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.vector import ConstructVectorEnv
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import NativeBackend, cpu_backend, make_kernel
from gensor_gym.measure.workers.process import WorkerProcess
from gensor_gym.measure.workers.requests import Built, Trial
from gensor_gym.operators.types import Operator

CHOICES = 10
"""Number of random schedules drawn for each schedule that the model ranks first."""


def run(config: DictConfig, emit: Lines) -> None:
    """Measure the rate of trials, the rate of episodes, the cost of isolation, and compile times; emit lines for each."""
    settings = config.measure
    hw = hardware.get("host")
    emit(kind="machine", compiler=find_compiler().version, calibration_loop_per_second=calibration(), **machine())
    op = operators.parse(settings.operator)
    graph = ConstructionGraph(op, hw, "extended")
    rng = np.random.default_rng(config.seed)
    schedules = [graph.random_schedule(rng) for _ in range(settings.trials)]
    with empty_cache():
        _rate("random", op, schedules, hw, emit)
        _rate("ranked", op, _ranked(graph, rng, settings.trials), hw, emit)
        for space in settings.episodes.spaces:
            _episodes(settings.episodes, space, hw, config.seed, emit)
        _isolation(op, schedules[: settings.isolation.kernels], hw, settings.isolation.rounds, emit)
        _compile(settings.compile, hw, rng, emit)


def _ranked(graph: ConstructionGraph, rng: np.random.Generator, count: int) -> list[Schedule]:
    """Draw random schedules and return the `count` that the model predicts to be fastest, as a search would choose them."""
    drawn = [graph.random_schedule(rng) for _ in range(CHOICES * count)]
    seconds = graph.latencies(np.ascontiguousarray(graph.stack(drawn), dtype=np.int32))
    return [drawn[i] for i in np.argsort(seconds, kind="stable")[:count]]


def _rate(name: str, op: Operator, schedules: list[Schedule], hw: Hardware, emit: Lines) -> None:
    """Measure schedules and emit the rate of trials; the first schedule only starts the worker and does not count."""
    with closing(cpu_backend()) as backend:
        backend.measure(op, schedules[:1], hw)
        steal = Steal()
        begin = time.perf_counter()
        measured = backend.measure(op, schedules[1:], hw)
        wall = time.perf_counter() - begin
    ok = [m for m in measured if m.status is Status.OK]
    kernel = sum(sum(m.samples) * _condition(m, "calls_per_sample") for m in ok)
    compiling = [_condition(m, "compile_seconds") for m in ok]
    emit(
        kind="rate", schedules=name, operator=str(op), trials=len(measured), ok=len(ok), wall_s=wall,
        trials_per_second=len(measured) / wall, kernel_s=_middle([m.seconds for m in ok]),
        compile_s={"median": _middle(compiling), "largest": max(compiling, default=None)},
        sampling_share=kernel / wall, stolen=steal.share(),
    )  # fmt: skip


def _episodes(settings: DictConfig, space: str, hw: Hardware, seed: int, emit: Lines) -> None:
    """Play random legal actions in a vector environment whose rewards are measured; emit the episodes that end per second."""
    rng, steps, ended, statuses = np.random.default_rng(seed), 0, 0, Counter[str]()
    with closing(ConstructVectorEnv(settings.environments, settings.operator, hw, space=space, backend="cpu")) as envs:
        _, info = envs.reset(seed=seed)
        get_backend("cpu", hw).measure(envs.graphs[0].operator, [envs.graphs[0].initial()], hw)  # starts the worker
        steal, begin = Steal(), time.perf_counter()
        while (wall := time.perf_counter() - begin) < settings.seconds:
            _, _, terminated, _, info = envs.step(np.array([rng.choice(np.flatnonzero(mask)) for mask in info["action_mask"]]))
            steps, ended = steps + 1, ended + int(terminated.sum())
            statuses.update(info["status"][terminated] if terminated.any() else ())
    emit(
        kind="episodes", operator=settings.operator, space=space, environments=settings.environments, steps=steps, wall_s=wall,
        episodes=ended, episodes_per_second=ended / wall, statuses=dict(statuses), stolen=steal.share(),
    )  # fmt: skip


def _isolation(op: Operator, schedules: list[Schedule], hw: Hardware, rounds: int, emit: Lines) -> None:
    """Time the same kernels in an isolated and in an ordinary worker process, alternately; emit both times and their ratio."""
    workers = {name: WorkerProcess(cpu_backend().name, shut_in=name == "on") for name in ("off", "on")}
    backend = cpu_backend()
    try:
        made = backend.compile([k for k in (make_kernel(op, s, hw) for s in schedules) if not isinstance(k, Measurement)])
        built = [item for item in made if isinstance(item, Built)]
        ways = {name: partial(_time, backend, worker, hw) for name, worker in workers.items()}
        in_turn(ways, built)  # starts the workers
        seconds = in_turn(ways, built * rounds)
    finally:
        for worker in workers.values():
            worker.close()
    ratios = np.array(seconds["on"]) / np.array(seconds["off"])
    emit(
        kind="isolation", operator=str(op), trials=len(ratios), trial_s={name: _middle(s) for name, s in seconds.items()},
        trials_per_second={name: len(s) / sum(s) for name, s in seconds.items()}, ratio=interval(ratios.tolist()),
    )  # fmt: skip


def _time(backend: NativeBackend, worker: WorkerProcess, hw: Hardware, item: Built) -> None:
    backend.local.time(worker, Trial(item.kernel, hw.units, 0.0), item)


def _middle(values: list[float]) -> float | None:
    return median(values) if values else None


def _condition(measurement: Measurement, name: str) -> float:
    value: Any = measurement.conditions[name]
    return float(value)


def _compile(settings: DictConfig, hw: Hardware, rng: np.random.Generator, emit: Lines) -> None:
    backend, whole = cpu_backend(), []
    for text in settings.operators:
        op = operators.parse(text)
        graph = ConstructionGraph(op, hw, "extended")
        seconds, failed = _seconds(backend, op, [graph.random_schedule(rng) for _ in range(settings.schedules)], hw)
        emit(
            kind="compile", operator=str(op), kernels=len(seconds), failed=failed, median_s=_middle(seconds),
            largest_s=max(seconds, default=None),
        )  # fmt: skip
        whole += seconds
    emit(
        kind="compile_all", operators=len(settings.operators), kernels=len(whole), median_s=_middle(whole),
        largest_s=max(whole), limit_s=settings.limit, over_limit=sum(s > settings.limit for s in whole),
    )  # fmt: skip


def _seconds(backend: NativeBackend, op: Operator, schedules: list[Schedule], hw: Hardware) -> tuple[list[float], int]:
    """Compile the distinct kernels of these schedules; return (seconds, failed).

    `seconds` has the time of each successful compilation, `failed` counts kernels that the generator or the compiler refused.
    """
    made = [make_kernel(op, schedule, hw) for schedule in schedules]
    kernels = {kernel.digest: kernel for kernel in made if not isinstance(kernel, Measurement)}
    built = backend.compile(list(kernels.values()))
    done = [item.compile_seconds for item in built if isinstance(item, Built)]
    return done, len(built) - len(done) + sum(isinstance(kernel, Measurement) for kernel in made)
