"""Lossless conversion between the formats of tuning spaces: content without a counterpart is kept as a patch.

A cache becomes results as Kernel Tuner itself writes them. Content that the results would lose is kept: under "kernel_tuner" in a
T4 file, under "T4" in a cache. So a round trip gives an equal document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gensor_gym.measure.measurement import Status
from gensor_gym.spaces import kernel_tuner, t4
from gensor_gym.spaces.space import TuningSpace
from gensor_gym.spaces.values import per_second

Json = dict[str, Any]

PHASES = {
    "compile_time": "compilation",
    "benchmark_time": "benchmark",
    "framework_time": "framework",
    "strategy_time": "search_algorithm",
    "verification_time": "validation",
    "times": "runtimes",
}
"""Name of a time in a Kernel Tuner cache's record -> its name in a T4 result."""
FAILURE = {"constraints": "InvalidConfig", "compile": "CompilationFailedConfig"}


def document_in(space: TuningSpace, format: str) -> Json:
    """Return the content of the space's file, converted to `format` unless it has that format already."""
    if space.format == format:
        return space.document
    return _to_t4(space) if format == t4.NAME else _to_cache(space)


def _to_t4(space: TuningSpace) -> Json:
    names = [p.name for p in space.parameters]
    header = {key: value for key, value in space.document.items() if key != "cache"}
    origin = header.get("T4")
    results = []
    for key, record in space.document["cache"].items():
        plain = {k: v for k, v in record.items() if k != "T4"} if origin is not None else record
        result = _result_of(plain, names)
        if origin is not None:
            result = _patched(result, record.get("T4", {}))
        else:
            patch = _patch(_record_of(result), record)
            patch |= {} if key == _key_of(result["configuration"]) else {"key": key}
            result |= {"kernel_tuner": patch} if patch else {}
        results.append(result)
    if origin is not None:
        return {**origin, "results": results}
    metadata = {"timeunit": "milliseconds", "kernel_tuner": header}
    return {"metadata": metadata, "results": results, "schema_version": "1.0.0"}


def _to_cache(space: TuningSpace) -> Json:
    document = space.document
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    origin = metadata.get("kernel_tuner")
    names = [p.name for p in space.parameters]
    factor = per_second(kernel_tuner.UNIT, "") / per_second(metadata.get("timeunit") or t4.UNIT, space.source)
    cache: Json = {}
    for result in document["results"]:
        if origin is not None:
            patch = result.get("kernel_tuner", {})
            record = _patched(_record_of(result), patch)
            key = patch.get("key", _key_of(result["configuration"]))
        else:
            record, key = _record_of(result, factor), _key_of(result["configuration"], names)
            patch = _patch(_result_of(record, names), result)
            record |= {"T4": patch} if patch else {}
        if key in cache:
            raise ValueError(f"{space.source}: two configurations have the key {key!r}, which a cache cannot hold")
        cache[key] = record
    if origin is not None:
        return {**origin, "cache": cache}
    return {
        "device_name": space.device,
        "kernel_name": space.kernel,
        "problem_size": None,
        "tune_params_keys": names,
        "tune_params": {p.name: list(p.values) for p in space.parameters},
        "objective": "time",
        "T4": {**document, "results": None},
        "cache": cache,
    }


def _result_of(record: Json, names: list[str]) -> Json:
    rest = {k: v for k, v in record.items() if k not in PHASES and k not in names and k != "timestamp"}
    fault = kernel_tuner.failure(record)
    status = kernel_tuner.FAILURES.get(fault, Status.LAUNCH_ERROR) if fault else Status.OK
    stamp = {"timestamp": record["timestamp"]} if "timestamp" in record else {}
    return {
        **stamp,
        "configuration": {name: record[name] for name in names if name in record},
        "times": {there: record[here] for here, there in PHASES.items() if here in record},
        "invalidity": t4.INVALIDITY[status],
        "correctness": int(status is Status.OK),
        "measurements": [{"name": k, "value": v, "unit": "ms" if k == "time" else ""} for k, v in rest.items()],
        "objectives": ["time"],
    }


def _record_of(result: Mapping[str, Any], factor: float = 1.0) -> Json:
    """Convert a T4 result to a cache record. `factor` turns its times into milliseconds."""
    times = {**result["times"]}
    if "compilation_time" in times:  # the schema's name; writers use `compilation`
        times.setdefault("compilation", times["compilation_time"])
    measured = {m["name"]: m.get("value") for m in result.get("measurements") or [] if isinstance(m, dict) and "name" in m}
    if isinstance(measured.get("time"), int | float):
        measured["time"] = _scaled(measured["time"], factor)
    record = {
        **result["configuration"],
        **measured,
        **{here: _scaled(times[there], factor) for here, there in PHASES.items() if there in times},
    }
    if "timestamp" in result:
        record["timestamp"] = result["timestamp"]
    if result["invalidity"] != "correct":
        wanted = FAILURE.get(result["invalidity"], "RuntimeFailedConfig")
        if kernel_tuner.failure(record) != wanted:
            record["__error__"] = wanted
    return record


def _scaled(value: Any, factor: float) -> Any:
    if factor == 1.0:
        return value
    return [v * factor for v in value] if isinstance(value, list) else value * factor


def _key_of(configuration: Mapping[str, Any], names: list[str] | None = None) -> str:
    """Return the key of a configuration in a cache: its values, separated by commas."""
    return ",".join(str(configuration[name]) for name in names or configuration)


def _patch(base: Json, wanted: Json) -> Json:
    """Return the changes that turn `base` into `wanted`: {"set": ..., "drop": ...}, empty if they are equal."""
    changed = {k: v for k, v in wanted.items() if k not in base or not _same(base[k], v)}
    gone = [k for k in base if k not in wanted]
    return ({"set": changed} if changed else {}) | ({"drop": gone} if gone else {})


def _same(a: Any, b: Any) -> bool:
    """Whether two values are equal as JSON: in Python, true equals 1."""
    return bool(a == b) and repr(a) == repr(b)


def _patched(base: Json, patch: Json) -> Json:
    return {k: v for k, v in {**base, **patch.get("set", {})}.items() if k not in patch.get("drop", ())}
