"""Kernel Tuner's cache files: an object for each configuration under "cache", times in milliseconds, failures as text.

Source: kernel_tuner 1.5.0 (`util.process_cache`, `util.store_cache`), and the caches of the FAIR benchmark hub.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from gensor_gym.measure.measurement import Status
from gensor_gym.spaces.space import Entry, TuningSpace
from gensor_gym.spaces.t4 import STATUSES
from gensor_gym.spaces.values import Value, duration, per_second, runtime, runtimes

NAME = "kernel_tuner"
UNIT = "ms"
FAILURES = {
    "InvalidConfig": Status.ILLEGAL,
    "CompilationFailedConfig": Status.COMPILE_ERROR,
    "RuntimeFailedConfig": Status.LAUNCH_ERROR,
    "ErrorConfig": Status.LAUNCH_ERROR,
}
"""Text that a cache has in place of a failed configuration's time, or under `__error__` -> status of the configuration."""
OLD_FAILURE = 1e20
"""The time that old versions of Kernel Tuner give a failed configuration."""
PHASES = ("compile_time", "verification_time", "benchmark_time")
"""Times in a cache's record that are costs of a trial. The overheads of the tuner (`framework_time`, `strategy_time`) do not
belong to the configuration."""


def space_of(document: dict[str, Any], source: str, unit: str | None = None) -> TuningSpace:
    """Make a space from the parsed content of a Kernel Tuner cache. ValueError names file and key of the unreadable part."""
    names = parameter_names(document, source)
    cache = document["cache"]
    if not isinstance(cache, dict):
        raise ValueError(f"{source}: 'cache' is {type(cache).__name__}; it takes an object of configurations")
    scale = per_second(unit or UNIT, source)
    entries = [_entry(key, record, names, document, source, scale) for key, record in cache.items()]
    texts = [document.get("kernel_name"), document.get("device_name")]
    kernel, device = (text if isinstance(text, str) else "" for text in texts)
    return TuningSpace.of(entries, names, kernel, device, NAME, source, document)


def parameter_names(document: Mapping[str, Any], source: str) -> list[str]:
    """Return the names of the tunable parameters, in the order of the values in the cache's keys."""
    names = document.get("tune_params_keys", list(document.get("tune_params") or {}))
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{source}: 'tune_params_keys' is {names!r}; it takes a list of names")
    return names


def failure(record: Mapping[str, Any]) -> str:
    """Return the text that a cache record gives for a failed configuration; empty for a success."""
    for key, value in record.items():
        if isinstance(value, str) and (value in FAILURES or key == "__error__"):
            return value or "ErrorConfig"
    return "ErrorConfig" if record.get("time") == OLD_FAILURE else ""


def _entry(key: str, record: object, names: list[str], document: Mapping[str, Any], source: str, scale: float) -> Entry:
    where = f"cache[{key!r}]"
    if not isinstance(record, dict):
        raise ValueError(f"{source}: {where} is {record!r}; it takes an object")
    at = f"{source}: {where}"
    values = _values(key, record, names, document, at)
    spent = sum(duration(record.get(phase), f"{at}[{phase!r}]") for phase in PHASES) / scale
    fault = failure(record)
    if fault:
        return Entry(where, values, _status(fault, record), charge=spent, error=fault)
    raw = runtimes(record.get("times"), f"{at}['times']")
    if record.get("time") is None and not raw:
        raise ValueError(f"{at} has neither 'time' nor 'times' nor a failure; it has {sorted(record)}")
    mean = statistics.fmean(raw) if record.get("time") is None else runtime(record["time"], f"{at}['time']")
    if "benchmark_time" not in record:
        spent += (sum(raw) or mean) / scale
    return Entry(where, values, Status.OK, mean / scale, tuple(t / scale for t in raw), spent)


def _status(fault: str, record: Mapping[str, Any]) -> Status:
    """Return the status of a failed configuration. A record converted from a T4 result has a more precise status."""
    origin = record.get("T4")
    told = origin.get("set", {}).get("invalidity") if isinstance(origin, dict) else None
    return STATUSES.get(told, Status.LAUNCH_ERROR) if told else FAILURES.get(fault, Status.LAUNCH_ERROR)


def _values(key: str, record: Mapping[str, Any], names: list[str], document: Mapping[str, Any], where: str) -> dict[str, Value]:
    """Return the values of all parameters of a configuration.

    A value that the record lacks is read from its key, if `tune_params` lists the parameter's values.
    """
    pieces = key.split(",")
    known = document.get("tune_params") or {}
    values: dict[str, Value] = {}
    for position, name in enumerate(names):
        if name in record:
            values[name] = _listed(record[name], known.get(name, []))
            continue
        fitting = [v for v in known.get(name, []) if len(pieces) == len(names) and str(v) == pieces[position]]
        if not fitting:
            raise ValueError(f"{where} lacks parameter {name!r}; it takes a value for each of {names}")
        values[name] = fitting[0]
    return values


def _listed(value: Value, known: list[Value]) -> Value:
    """Return a value; a text that is not in `known` becomes the number in `known` with this text, if there is one."""
    if not isinstance(value, str) or value in known:
        return value
    return next((v for v in known if isinstance(v, int | float) and str(v) == value), value)


def text_of(document: dict[str, Any], dumps: Any) -> str:
    """Return the JSON text of a cache with one line for each configuration, so that Kernel Tuner can continue it."""
    header = dumps({**{k: v for k, v in document.items() if k != "cache"}, "cache": {}})
    lines = [f"{dumps(key)}: {dumps(record)}" for key, record in document["cache"].items()]
    return header[:-2] + "\n" + ",\n".join(lines) + "}\n}"
