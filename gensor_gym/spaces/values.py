"""Numbers and parameter values in files of other tuners: checked, converted, sorted."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

Value = bool | int | float | str | None | list | dict
"""Value of a parameter: any value that JSON has."""

PER_SECOND = {
    "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "ms": 1e3, "millisecond": 1e3, "milliseconds": 1e3, "milisecond": 1e3, "miliseconds": 1e3,
    "us": 1e6, "microsecond": 1e6, "microseconds": 1e6,
    "ns": 1e9, "nanosecond": 1e9, "nanoseconds": 1e9,
}  # fmt: skip
"""Name of a unit of time -> number of these units in a second. Published T4 files say "miliseconds"."""


def per_second(unit: object, where: str) -> float:
    """Return how many units of time are in a second, such as 1000 for `ms`. ValueError names the available units.

    `where` is the name of the value in error messages, in this and the other functions of this module.
    """
    if not isinstance(unit, str) or unit.strip().lower() not in PER_SECOND:
        raise ValueError(f"{where}: time unit {unit!r} is not one of {sorted(PER_SECOND)}")
    return PER_SECOND[unit.strip().lower()]


def number(value: object, where: str) -> float:
    """Return a number, or the text of a number, as a finite float. ValueError for anything else."""
    try:
        found = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"{where} is {value!r}; it takes a finite number")
    return found


def duration(value: object, where: str) -> float:
    """Return a value as seconds or another duration of 0 or more; None becomes 0. ValueError for anything else."""
    found = 0.0 if value is None else number(value, where)
    if found < 0.0:
        raise ValueError(f"{where} is {found!r}; a duration is 0 or more")
    return found


def runtime(value: object, where: str) -> float:
    """Return a value as a run time above 0. ValueError for anything else."""
    found = number(value, where)
    if found <= 0.0:
        raise ValueError(f"{where} is {found!r}; a run time is above 0")
    return found


def runtimes(values: object, where: str) -> tuple[float, ...]:
    """Return a list of values as run times above 0; None becomes an empty tuple. ValueError for anything else."""
    if values is None:
        return ()
    if not isinstance(values, list):
        raise ValueError(f"{where} is {values!r}; it takes a list of numbers")
    return tuple(runtime(value, f"{where}[{i}]") for i, value in enumerate(values))


def identity(value: Value) -> tuple[int, object]:
    """Return a key that identifies and orders parameter values: numbers by size, then text, then all others.

    1 and 1.0 are the same, true and 1 are not.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (0, value)
    if isinstance(value, str):
        return (1, value)
    return (2, json.dumps(value, sort_keys=True))


def ordered(values: Iterable[Value]) -> tuple[Value, ...]:
    """Return the distinct values in an order that does not depend on the file."""
    distinct = {identity(value): value for value in values}
    return tuple(distinct[key] for key in sorted(distinct))  # type: ignore[type-var]
