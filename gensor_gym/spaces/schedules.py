"""A recorded table of this project's schedules as a T4 document, for other tuners and for `Recorded-v0`.

Parameters are the tiles, virtual threads and knobs that take more than one value in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gensor_gym import operators
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.structure import LEVELS
from gensor_gym.graph.tables.layout import slot_of
from gensor_gym.hardware.described import from_json
from gensor_gym.measure.analytic import program_key
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records.store import Record
from gensor_gym.measure.records.tables import Table
from gensor_gym.operators.types import Operator
from gensor_gym.spaces import t4

LEVEL_NAMES = {"gpu": ("register", "block"), "cpu": ("register", "l1", "task")}
"""Names of the tiling levels, from the registers outwards."""
MS = 1e3


def document_of(table: Table, source: str) -> dict[str, Any]:
    """Convert a recorded table of timings to a T4 document, with times in milliseconds as usual in T4.

    ValueError unless the table describes its machine and has timings of one operator.
    """
    names = sorted({record.operator for record in table.records})
    if len(names) != 1 or "hardware" not in table.about:
        raise ValueError(f"{source}: expected the timings of one operator on a machine that the file describes, found {names}")
    op, machine = operators.parse(names[0]), from_json(table.about["hardware"])
    seen: dict[bytes, tuple[dict[str, int], Record]] = {}
    for record in table.records:
        schedule = Schedule.parse(record.schedule)
        if record.measurement.status is not Status.NOT_RECORDED:
            seen.setdefault(program_key(schedule), (_configuration(op, schedule, machine.kind), record))
    columns = {name: {values[name] for values, _ in seen.values()} for name in next(iter(seen.values()), ({}, None))[0]}
    moving = [name for name, values in columns.items() if len(values) > 1] or list(columns)[:1]
    results = [_result({name: values[name] for name in moving}, record.measurement) for values, record in seen.values()]
    fixed = {name: next(iter(values)) for name, values in columns.items() if name not in moving}
    header = {"kernel_name": names[0], "device_name": table.records[0].device, "tune_params_keys": moving}
    about = {"operator": names[0], "machine": machine.name, "protocol": table.records[0].protocol, "fixed": fixed}
    metadata = {"timeunit": "milliseconds", "kernel_tuner": header, "gensor_gym": about}
    return {"metadata": metadata, "results": results, "schema_version": "1.0.0"}


def _configuration(op: Operator, schedule: Schedule, kind: str) -> dict[str, int]:
    slots = {axis.name: slot_of(a, len(op.spatial)) for a, axis in enumerate(op.axes)}
    levels = LEVEL_NAMES[kind]
    assert len(levels) == LEVELS[kind]
    tiles = {f"{name}_{axis}": int(schedule.tile[level, s]) for level, name in enumerate(levels) for axis, s in slots.items()}
    threads = {f"vthread_{axis}": int(schedule.vthread[s]) for axis, s in slots.items()} if kind == "gpu" else {}
    knobs = {knob.name: schedule.knob(knob.name) for knob in KNOBS if knob.kind in (kind, "both")}
    return tiles | threads | knobs


def _result(configuration: Mapping[str, int], found: Measurement) -> dict[str, Any]:
    good = found.status is Status.OK
    compiled, trial = (found.conditions.get(name, 0.0) for name in ("compile_seconds", "trial_seconds"))
    assert isinstance(compiled, float) and isinstance(trial, float)
    times = {
        "compilation": MS * compiled,
        "benchmark": MS * max(0.0, trial - compiled),
        "runtimes": [MS * t for t in found.samples] if good else [],
    }
    measured = [{"name": "time", "value": MS * found.seconds, "unit": "milliseconds"}] if good else []
    return {
        "configuration": dict(configuration),
        "times": times,
        "invalidity": t4.INVALIDITY[found.status],
        "correctness": int(good),
        "measurements": measured,
        "objectives": ["time"],
    }
