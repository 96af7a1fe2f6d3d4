"""Measuring itself: trials per second, where their time goes, and how well a timing repeats in another worker."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from omegaconf import DictConfig

from experiments.benches.lines import Lines, Steal, calibration, machine
from gensor_gym import hardware, operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import NativeBackend, cpu_backend
from gensor_gym.operators.types import Operator


def run(config: DictConfig, emit: Lines) -> None:
    """Lines for the rate of trials and for their repeatability."""
    settings = config.measure
    hw = hardware.get("host")
    emit(kind="machine", calibration_loop_per_second=calibration(), **machine())
    op = operators.parse(settings.operator)
    graph = ConstructionGraph(op, hw, "extended")
    rng = np.random.default_rng(config.seed)
    schedules = [graph.random_schedule(rng) for _ in range(settings.trials)]
    first = cpu_backend()
    try:
        measured = _rate(first, op, schedules, hw, emit)
    finally:
        first.close()
    best = sorted((m.seconds, i) for i, m in enumerate(measured) if m.status is Status.OK)[: settings.repeated]
    _repeat(op, [schedules[i] for _, i in best], [measured[i] for _, i in best], hw, emit)


def _rate(
    backend: NativeBackend, op: Operator, schedules: list[Schedule], hw: Hardware, emit: Lines
) -> list[Measurement]:
    """Measure all; the worker is started beforehand."""
    backend.measure(op, schedules[:1], hw)
    steal = Steal()
    begin = time.perf_counter()
    measured = backend.measure(op, schedules[1:], hw)
    wall = time.perf_counter() - begin
    ok = [m for m in measured if m.status is Status.OK]
    kernel = sum(sum(m.samples) * _condition(m, "calls_per_sample") for m in ok)
    compiling = sum(_condition(m, "compile_seconds") for m in ok)
    emit(
        kind="rate", operator=str(op), trials=len(measured), ok=len(ok), wall_s=wall,
        trials_per_second=len(measured) / wall,
        compile_s_per_trial=compiling / max(1, len(ok)), sampling_share=kernel / wall, stolen=steal.share(),
    )  # fmt: skip
    return [*backend.measure(op, schedules[:1], hw), *measured]


def _condition(measurement: Measurement, name: str) -> float:
    """A number among the conditions of a measurement."""
    value: Any = measurement.conditions[name]
    return float(value)


def _repeat(op: Operator, schedules: list[Schedule], before: list[Measurement], hw: Hardware, emit: Lines) -> None:
    """The same kernels in a new worker: ratio of the medians, and of the widths of the samples."""
    second = cpu_backend()
    try:
        after = second.measure(op, schedules, hw)
    finally:
        second.close()
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if b.status is Status.OK]
    ratios = [b.seconds / a.seconds for a, b in pairs]
    within = [float(np.quantile(m.samples, 0.75) / np.quantile(m.samples, 0.25)) - 1 for pair in pairs for m in pair]
    emit(
        kind="repeatability", operator=str(op), kernels=len(pairs), ratios=ratios,
        median_deviation=float(np.median(np.abs(np.log(ratios)))) if ratios else None,
        largest_deviation=float(np.max(np.abs(np.log(ratios)))) if ratios else None,
        median_interquartile_range=float(np.median(within)) if within else None,
    )  # fmt: skip
