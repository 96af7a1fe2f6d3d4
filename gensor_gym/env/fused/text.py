"""A schedule of a fused operator as text: its kernels, their passes over the columns, and the instructions of each pass."""

from __future__ import annotations

from dataclasses import dataclass

from gensor_gym.env.pictures.facts import in_seconds
from gensor_gym.gir.gpu.teams import block_shape
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.igraph import Instruction, Slice
from gensor_gym.gir.lowering import lower
from gensor_gym.gir.schedule import GirSchedule


@dataclass(frozen=True)
class Step:
    """Numbers of `rows` and of columns (`wide`) that a kernel (on a GPU, one block) computes in one iteration of its loops."""

    rows: int
    wide: int


def as_text(graph: GirGraph, schedule: GirSchedule) -> str:
    """Return the text of a schedule: its time by the model and settings, then each kernel's passes and instructions."""
    lines = [title(graph, schedule), str(schedule)]
    lowered = lower(graph.nest, schedule.placement(len(graph.nest.crossing)))
    for number, kernel in enumerate(lowered.kernels):
        step, words = step_of(graph, schedule, len(kernel.passes))
        lines.append(f"kernel {number}: {words}")
        lines += [f"    {instruction_text(one, step)}" for one in kernel.before]
        for one in kernel.passes:
            lines.append(f"  for each {step.wide} of {graph.nest.columns} columns")
            lines += [f"    {instruction_text(i, step)}" for i in one.along]
            lines += [f"  once a row: {instruction_text(i, step)}" for i in one.after]
    return "\n".join(lines) + (f"\nno kernel can do this: {lowered.fault}" if lowered.fault else "")


def step_of(graph: GirGraph, schedule: GirSchedule, passes: int) -> tuple[Step, str]:
    """Return (size of one iteration, text about it) for a kernel with this number of passes over the columns.

    The text also says how threads or blocks share the iterations.
    """
    header = {name: schedule.value(name) for name in GirSchedule.places}
    if graph.hardware.kind == "cpu":
        step = Step(header["rows"], header["tile"] * header["vector"])
        return step, f"for each step of {step.rows} of {rows_text(graph)}, {header['loop']} steps a task"
    block = block_shape(graph.nest, header, passes, graph.hardware)
    words = f"{block.blocks} blocks of {block.threads} threads; for each step of {block.rows} of {rows_text(graph)}, "
    words += f"{block.lanes} lanes a row, {block.turns} steps a block"
    return Step(block.rows, block.wide), words + (f", {block.parts} blocks share a row" if block.parts > 1 else "")


def rows_text(graph: GirGraph) -> str:
    """Return the number of rows as text: `8 rows`, or `32 parts of 8 rows`."""
    nest, whole = graph.nest, graph.nest.rows // graph.nest.parts
    rows = f"{whole} row{'s' if whole > 1 else ''}"
    return rows if nest.parts == 1 else f"{nest.rows} parts of {rows}"


def title(graph: GirGraph, schedule: GirSchedule) -> str:
    """Return one line of text with the operator, the machine, and the schedule's time by the model."""
    seconds = graph.latency(schedule)
    if seconds == float("inf"):
        return f"{graph.operator} on {graph.hardware.name}: not legal here"
    return f"{graph.operator} on {graph.hardware.name}: {in_seconds(seconds)} by the model, {seconds / graph.floor:.3g}x floor"


def instruction_text(one: Instruction, step: Step) -> str:
    """Return the text of an instruction, such as `e.reg[2x32] = exp(x - top)` or `x.reg[2x32] = move x.dram[2x32]`."""
    what = {"move": "move", "map": f"{one.body}", "reduce": f"reduce {one.body}"}[one.kind]
    sources = [slice_text(part, step) for _, part in one.sources] if one.kind != "map" else []
    return " ".join([slice_text(one.target, step), "=", what, *sources])


def slice_text(part: Slice, step: Step) -> str:
    """Return the text of an instruction's operand: buffer, memory level and shape, such as `e.reg[2x32]`."""
    shape = f"{step.rows}x{step.wide}" if part.wide else f"{step.rows}"
    return f"{part.buffer.name}.{part.buffer.level.name.lower()}[{shape}]"
