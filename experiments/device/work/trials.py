"""Rules of trials on the device, their results as rows, and errors that do not end a stage."""

from __future__ import annotations

import statistics
import time
import traceback
from collections.abc import Callable
from typing import Any

from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.native import GPU_WARMUP
from gensor_gym.measure.stats.intervals import median_interval
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers.process import WorkerLost

Samples = dict[str, list[float]]
"""Seconds of every round by contestant."""

SEARCH = TimingRules(budget=0.1, warmup=GPU_WARMUP)
"""Rules for trials of searches and tables: half of the usual sampling time, so that more trials fit."""
CHECK = TimingRules(budget=2e-3, sample=1e-4, warmup=0.0, least=1, most=2)
"""Rules for trials that verify the answer and not the time."""
FINAL = TimingRules(warmup=GPU_WARMUP)


def or_without_torch(timed: Callable[[bool], Samples]) -> tuple[Samples, dict[str, str]]:
    """(samples, errors) of `timed(torch)`, where `torch` says whether torch is timed too: with it, or without it if that fails.

    Errors are `torch_error`, why torch is missing, and `error`, why there are no samples at all.
    """
    errors: dict[str, str] = {}
    for torch in (True, False):
        try:
            return timed(torch), errors
        except (ValueError, RuntimeError, WorkerLost) as error:
            errors["torch_error" if torch else "error"] = str(error)[-600:]
    return {}, errors


def timed_or_error(does: Callable[..., dict[str, Any]], *of: Any, error: str, seconds: str) -> dict[str, Any]:
    """Result of `does(*of)`, or its trace in an entry named by `error`; then its duration in an entry named by `seconds`."""
    begin = time.perf_counter()
    try:
        said = does(*of)
    except Exception as fault:  # a failure is a result, too
        said = {error: f"{type(fault).__name__}: {fault}"[-600:], "trace": traceback.format_exc()[-2000:]}
    return {**said, seconds: time.perf_counter() - begin}


def facts(measurement: Measurement) -> dict[str, object]:
    """A measurement as entries of a row, with the field names of recorded tables."""
    return {
        "status": measurement.status.value,
        "samples": list(measurement.samples),
        "conditions": measurement.conditions,
        "error": measurement.error[-600:],
        "digest": measurement.digest,
    }


def summary_of(samples: list[float]) -> dict[str, float]:
    """Median with its distribution-free interval of 95 percent, in seconds, and the number of samples."""
    low, high = median_interval(samples)
    return {"median": statistics.median(samples), "low": low, "high": high, "samples": len(samples)}
