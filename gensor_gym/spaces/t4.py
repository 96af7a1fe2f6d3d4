"""The T4 result format of auto-tuners: a list of results, each with configuration, times, invalidity and measurements.

Source: results-schema.json 1.0.0 (github.com/odgaard/TuningSchema, branch T4), and the output of Kernel Tuner 1.5.0.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from gensor_gym.measure.measurement import Status
from gensor_gym.spaces.space import Entry, TuningSpace
from gensor_gym.spaces.values import duration, per_second, runtime, runtimes

NAME = "t4"
UNIT = "ms"
"""Unit of times if neither the file nor a measurement names one: that of the most common writer."""
STATUSES = {
    "correct": Status.OK,
    "timeout": Status.TIMEOUT,
    "compile": Status.COMPILE_ERROR,
    "runtime": Status.LAUNCH_ERROR,
    "correctness": Status.WRONG_ANSWER,
    "constraints": Status.ILLEGAL,
}
"""`invalidity` of a T4 result -> status. `correctness` is ignored: writers set it to 1 for failures too."""
INVALIDITY = {status: word for word, status in STATUSES.items()} | {
    Status.CRASHED: "runtime", Status.IMPLAUSIBLE: "correctness",
}  # fmt: skip
"""Status -> `invalidity` of a T4 result. The format has no word for CRASHED and IMPLAUSIBLE."""
PHASES = ("compilation", "compilation_time", "validation", "benchmark")
"""Times in a T4 result that are costs of a trial. `framework` and `search_algorithm` belong to the tuner."""


def space_of(document: dict[str, Any], source: str, unit: str | None = None) -> TuningSpace:
    """Make a space from the parsed content of a T4 file. ValueError names file and key of the unreadable part."""
    results = document["results"]
    if not isinstance(results, list):
        raise ValueError(f"{source}: 'results' is {type(results).__name__}; it takes a list of results")
    meta = document.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    scale = per_second(unit or meta.get("timeunit") or UNIT, source)
    entries = [_entry(i, result, source, scale) for i, result in enumerate(results)]
    names = list(entries[0].values) if entries else []
    header = meta.get("kernel_tuner")
    header = header if isinstance(header, dict) else {}
    kernel, device = (str(header.get(key) or "") for key in ("kernel_name", "device_name"))
    return TuningSpace.of(entries, names, kernel, device, NAME, source, document)


def _entry(position: int, result: object, source: str, scale: float) -> Entry:
    where = f"results[{position}]"
    at = f"{source}: {where}"
    if not isinstance(result, dict) or not isinstance(result.get("configuration"), dict):
        raise ValueError(f"{at} has no object 'configuration'; a result takes configuration, times and invalidity")
    found = result.get("invalidity")
    if not isinstance(found, str) or found not in STATUSES:
        raise ValueError(f"{at}['invalidity'] is {found!r}; it is one of {list(STATUSES)}")
    times = result.get("times")
    if not isinstance(times, dict):
        raise ValueError(f"{at}['times'] is {times!r}; it takes an object")
    spent = sum(duration(times.get(phase), f"{at}['times'][{phase!r}]") for phase in PHASES) / scale
    values = dict(result["configuration"])
    if STATUSES[found] is not Status.OK:
        return Entry(where, values, STATUSES[found], charge=spent, error=found)
    raw = tuple(t / scale for t in runtimes(times.get("runtimes"), f"{at}['times']['runtimes']"))
    reported = _reported(result, at, scale)
    if reported is None and not raw:
        raise ValueError(f"{at} is 'correct' but has neither a measurement named 'time' nor runtimes")
    mean = statistics.fmean(raw) if reported is None else reported
    if "benchmark" not in times:
        spent += sum(raw) or mean
    return Entry(where, values, Status.OK, mean, raw, spent)


def _reported(result: Mapping[str, Any], where: str, scale: float) -> float | None:
    """Return the measurement named `time` in seconds, from its own unit if it has one; None if it is missing."""
    measurements = result.get("measurements")
    for i, measured in enumerate(measurements if isinstance(measurements, list) else []):
        if isinstance(measured, dict) and measured.get("name") == "time":
            at = f"{where}['measurements'][{i}]"
            own = per_second(measured["unit"], at) if measured.get("unit") else scale
            return runtime(measured.get("value"), f"{at}['value']") / own
    return None
