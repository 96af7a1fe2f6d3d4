"""Checks of other users' records, before a record is stored or used.

A record is data, without code. Its values must be bounded, of the right types, and of this version's operators and schedules. Its
program is verified at the first use (`verified`).
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gensor_gym import hardware
from gensor_gym.codegen.families import is_parsed, parsed
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.resolve import resolve_computation
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.legality import is_legal
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.records.store import IMPORTED, Record
from gensor_gym.operators.types import Operator

LONGEST = {"operator": 4_000, "schedule": 4_000, "device": 400, "digest": 200, "error": 100_000}
"""Text field of a record -> largest number of characters."""
CONDITIONS = 200_000
"""Largest number of characters of a record's conditions as JSON. They may contain the pass numbers of ten thousand samples."""
SAMPLES = 100_000
UNNAMED = re.compile(r"\w+@[0-9a-f]{12}")
"""Text of a graph without a call that makes it, as those of networks: its digest. Its programs are checked when it is at hand."""
AHEAD = 86_400.0
"""Number of seconds by which a record's date may be in the future, for machines whose clock is fast. A later date would give the
record precedence over trials made after it.
"""


def checked(records: Iterable[Record], source: str, own: bool = False) -> list[Record]:
    """Check records of other users. Return them marked as imported, so that no search uses them.

    With `own`, which is for records that this user measured on this machine, they are not marked. ValueError names the rejected
    record and the reason.
    """
    taken = list(records)
    for number, record in enumerate(taken, 1):
        if found := fault(record):
            raise ValueError(f"{source}, record {number}: {found}")
    return [_marked(record, own) for record in taken]


def _marked(record: Record, own: bool) -> Record:
    conditions = {name: value for name, value in record.measurement.conditions.items() if name != IMPORTED}
    conditions |= {} if own else {IMPORTED: True}
    return replace(record, measurement=replace(record.measurement, conditions=conditions))


def fault(record: Record, legality: bool = True, known: Operator | Dataflow | None = None) -> str:
    """Check a record's texts, numbers, operator and schedule. Return the reason to reject it; empty if there is none.

    Without `legality` the schedule's legality is not checked. `known` is the operator if it is available: a user's own graph
    cannot be found by its name.
    """
    return _fault_of_texts(record) or fault_of_numbers(record) or _fault_of_program(record, legality, known)


def _fault_of_texts(record: Record) -> str:
    m = record.measurement
    texts = {"operator": record.operator, "schedule": record.schedule, "device": record.device}
    for name, text in (texts | {"digest": m.digest, "error": m.error}).items():
        if not isinstance(text, str):
            return f"its {name} is {type(text).__name__}, expected a text"
        if len(text) > LONGEST[name]:
            return f"its {name} has {len(text)} characters, expected at most {LONGEST[name]}"
    if not isinstance(m.conditions, dict) or not all(isinstance(name, str) for name in m.conditions):
        return "its conditions are no object"
    length = len(json.dumps(m.conditions, default=str))
    return f"its conditions have {length} characters, expected at most {CONDITIONS}" if length > CONDITIONS else ""


def fault_of_numbers(record: Record) -> str:
    """Return the reason to reject a record's samples, protocol or date; empty if there is none."""
    m = record.measurement
    if len(m.samples) > SAMPLES or (m.status is Status.OK and not m.samples):
        return f"it has {len(m.samples)} samples, expected at most {SAMPLES}, and one at least where it is OK"
    wrong = next((value for value in m.samples if not (_is_number(value) and 0 < value < math.inf)), None)
    if wrong is not None:
        return f"a sample is {wrong!r}, expected seconds above 0"
    if not isinstance(record.protocol, int) or isinstance(record.protocol, bool) or record.protocol < 0:
        return f"its protocol is {record.protocol!r}, expected a number from 0 on"
    if not (_is_number(record.created) and 0 <= record.created <= time.time() + AHEAD):
        return f"its date is {record.created!r}, expected seconds since 1970 that are not to come"
    return ""


def _fault_of_program(record: Record, legality: bool, known: Operator | Dataflow | None) -> str:
    """Return the reason to reject a record's operator or schedule (unknown to this version, or not legal here).

    Empty if there is none.
    """
    if known is None and UNNAMED.fullmatch(record.operator):
        return "" if is_parsed(record.schedule) else f"its schedule is not one: {record.schedule}"
    try:
        op = known or resolve_computation(record.operator)
        schedule = parsed(op, record.schedule)
    except (OverflowError, ValueError) as error:
        return str(error)
    if str(op) != record.operator:
        return f"its operator is {record.operator!r}, expected it written as {str(op)!r}"
    if isinstance(schedule, Schedule) and (schedule.row.min() < 0 or schedule.tile.min() < 1 or schedule.vthread.min() < 1):
        return f"its schedule has a tile below 1: {record.schedule}"
    legality = legality and record.measurement.status is Status.OK and record.device == _device()
    if legality and not is_legal(op, schedule, hardware.get("host")):
        return f"its schedule is not legal here: {record.schedule}"
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _device() -> str:
    """Return the name of this machine in records."""
    from gensor_gym.measure.devices.cpu import processor_name

    return f"{processor_name()} x{hardware.get('host').units}"
