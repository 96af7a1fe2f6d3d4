"""Machines as JSON: a table of timings comes with a description of its machine, which can be loaded on any other machine.

A folder `gensor_gym/recordings/<name>` contains the tables recorded on one machine and, as `hardware.json`, the description of
the machine at that time. The model's rates of a machine may change later; its tables remain valid.
"""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from gensor_gym.foreign import parse_object, read_text
from gensor_gym.hardware.types import Hardware, MemoryLevel

RECORDINGS = Path(__file__).resolve().parents[1] / "recordings"
MEASURED = Path(__file__).resolve().parents[1] / "data" / "measured"
FILE = "hardware.json"
RATES = ("clock", "peak", "launch_overhead", "tensor_peak", "tensor_sustained", "mma_share")
"""Fields of `Hardware` that only the cost model reads, as it alone reads bandwidths, latencies and transactions of memory."""
_KINDS: dict[str, Any] = {"int": int, "float": (int, float), "str": str, "bool": bool}
Described = TypeVar("Described", Hardware, MemoryLevel)
_MEASURED = {field.name for field in dataclasses.fields(MemoryLevel) if field.default is not dataclasses.MISSING}
"""Fields of a memory level that are 0 if they were not measured."""
_NO_FIGURES = ("name", "source", "compilable")


def to_json(hw: Hardware) -> str:
    """Return the machine as JSON text that `from_json` reads. Unmeasured rates of memory levels are omitted."""
    value = dataclasses.asdict(hw)
    value["memory"] = [{name: of for name, of in level.items() if of or name not in _MEASURED} for level in value["memory"]]
    return json.dumps(value, indent=1) + "\n"


def from_json(text: str) -> Hardware:
    """Return the machine that `to_json` wrote. ValueError for text that does not describe a machine."""
    try:
        value = parse_object(text)
        value["peak"] = tuple((dtype, rate) for dtype, rate in value["peak"])
        value["tensor_peak"] = tuple((dtype, rate) for dtype, rate in value.get("tensor_peak", ()))
        value["memory"] = tuple(_checked(MemoryLevel(**level)) for level in value["memory"])
        return _checked(Hardware(**value))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no machine: {text[:60]!r} ({error})") from error


def _checked(described: Described) -> Described:
    """Return the machine or memory level unchanged. ValueError if a figure has the wrong type or is negative."""
    for field in dataclasses.fields(described):
        value, kinds = getattr(described, field.name), _KINDS.get(str(field.type))
        wrong_type = kinds is not None and (not isinstance(value, kinds) or isinstance(value, bool) != (kinds is bool))
        if wrong_type or (isinstance(value, (int, float)) and value < 0):
            raise ValueError(f"{field.name} is {value!r}; expected {field.type}, not negative")
    return described


def differences(described: Hardware, hw: Hardware) -> list[str]:
    """Return in words how machine `hw` differs from a described machine; empty if that machine's timings are valid for `hw`.

    If both have the same name, rates may differ, because schedules and generated code do not depend on them. If the names differ,
    all figures must be equal.
    """
    ours, theirs = (_figures(machine, described.name == hw.name) for machine in (hw, described))
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    return [f"{name} is {ours.get(name)}, there {theirs.get(name)}" for name in names]


def _figures(hw: Hardware, limits_alone: bool) -> dict[str, object]:
    """Return the figures of a machine by name (memory: `memory.<level>.<field>`). `limits_alone` leaves out the rates."""
    left_out = (*_NO_FIGURES, *(RATES if limits_alone else ()), "memory")
    figures = {field.name: getattr(hw, field.name) for field in dataclasses.fields(hw) if field.name not in left_out}
    every = tuple(field.name for field in dataclasses.fields(MemoryLevel) if field.name != "name")
    kept = ("capacity",) if limits_alone else every
    return figures | {f"memory.{level.name}.{name}": getattr(level, name) for level in hw.memory for name in kept}


def recorded_names() -> tuple[str, ...]:
    """Return the names of the machines on which the shipped tables were recorded."""
    return tuple(sorted(path.parent.name for path in RECORDINGS.glob(f"*/{FILE}")))


def measured_names() -> tuple[str, ...]:
    """Return the names of the machines of the data set Measured v1 (`measure.records.measured`)."""
    return tuple(sorted(path.stem for path in MEASURED.glob("*.json")))


def recorded_machine(name: str) -> Hardware:
    """Return the machine of one of `recorded_names()` or `measured_names()`."""
    return _read(MEASURED / f"{name}.json" if name in measured_names() else RECORDINGS / name / FILE)


@cache
def _read(path: Path) -> Hardware:
    return from_json(read_text(path))
