"""A schedule as a table: the tile sizes of each level along each axis, from the innermost level outwards."""

from __future__ import annotations

from experiments.sheets.cells import Given, count
from experiments.sheets.sheet import Sheet
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, TILE, VTHREAD, slot_of
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

LEVELS = {"cpu": ("registers", "L1 tile", "task (L2)"), "gpu": ("registers", "block (shared memory)")}
"""Names of the levels by kind of hardware, from the innermost level outwards."""


def tiles(op: Operator, hw: Hardware, schedule: Schedule) -> Sheet:
    """Table with a column for each axis and a row for each level; a note lists the knobs with other than default values."""
    slots = [slot_of(number, len(op.spatial)) for number in range(len(op.axes))]
    rows: list[list[Given]] = []
    if any(schedule.row[VTHREAD + slot] > 1 for slot in slots):
        rows.append(["virtual threads", *(count(int(schedule.row[VTHREAD + slot])) for slot in slots)])
    for level, name in enumerate(LEVELS[hw.kind]):
        rows.append([name, *(count(int(schedule.row[TILE + level * MAX_AXES + slot])) for slot in slots)])
    rows.append(["whole", *(count(axis.extent) for axis in op.axes)])
    values = ((knob, knob.values[int(schedule.row[KNOB + number])]) for number, knob in enumerate(KNOBS))
    knobs = ", ".join(f"{knob.name} {value}" for knob, value in values if value != knob.default)
    note = f"knobs: {knobs}" if knobs else "all knobs at their usual values"
    return Sheet.of("tile of each level, along each axis", ("level", *(axis.name for axis in op.axes)), rows, [note])
