"""A schedule of a fused operator as text: its kernels, their passes, and the instructions of each on slices."""

from __future__ import annotations

from gensor_gym.env.pictures.facts import in_seconds
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.igraph import Instruction, Slice
from gensor_gym.gir.lowering import lower
from gensor_gym.gir.schedule import GirSchedule


def as_text(graph: GirGraph, schedule: GirSchedule) -> str:
    """What a schedule does, line by line, and what the model says of it."""
    lines = [title(graph, schedule), str(schedule)]
    rows = schedule.value("rows")
    lowered = lower(graph.nest, schedule.placement(len(graph.nest.crossing)))
    for number, kernel in enumerate(lowered.kernels):
        steps = f"{schedule.value('loop')} steps a task"
        lines.append(f"kernel {number}: for each step of {rows} of {rows_text(graph)}, {steps}")
        lines += [f"    {instruction_text(one, schedule)}" for one in kernel.before]
        for one in kernel.passes:
            wide = schedule.value("tile") * schedule.value("vector")
            lines.append(f"  for each {wide} of {graph.nest.columns} columns")
            lines += [f"    {instruction_text(i, schedule)}" for i in one.along]
            lines += [f"  once a row: {instruction_text(i, schedule)}" for i in one.after]
    return "\n".join(lines) + (f"\nno kernel can do this: {lowered.fault}" if lowered.fault else "")


def rows_text(graph: GirGraph) -> str:
    """How many rows there are, and whether they are parts of longer ones."""
    nest = graph.nest
    return f"{nest.rows} rows" if nest.parts == 1 else f"{nest.rows} parts of {nest.rows // nest.parts} rows"


def title(graph: GirGraph, schedule: GirSchedule) -> str:
    """Task and time by the model."""
    seconds = graph.latency(schedule)
    if seconds == float("inf"):
        return f"{graph.operator} on {graph.hardware.name}: not legal here"
    return f"{graph.operator} on {graph.hardware.name}: {in_seconds(seconds)} by the model, {seconds / graph.floor:.3g}x floor"


def instruction_text(one: Instruction, schedule: GirSchedule) -> str:
    """`e.reg[2x32] = map exp(x - top)`; of a move its source."""
    what = {"move": "move", "map": f"{one.body}", "reduce": f"reduce {one.body}"}[one.kind]
    sources = [slice_text(part, schedule) for _, part in one.sources] if one.kind != "map" else []
    return " ".join([slice_text(one.target, schedule), "=", what, *sources])


def slice_text(part: Slice, schedule: GirSchedule) -> str:
    """Buffer, level and shape of a slice."""
    rows, wide = schedule.value("rows"), schedule.value("tile") * schedule.value("vector")
    shape = f"{rows}x{wide}" if part.wide else f"{rows}"
    return f"{part.buffer.name}.{part.buffer.level.name.lower()}[{shape}]"

