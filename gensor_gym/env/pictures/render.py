"""A program as readable text (`as_text`) or as a figure (`as_image`)."""

from __future__ import annotations

from dataclasses import dataclass

from gensor_gym.codegen.program import Program, lower
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.pictures.facts import LEVEL_NAMES, bound, in_bytes, in_seconds, spread, uses
from gensor_gym.env.pictures.figure import as_image
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.structure import is_staged, vector_axis
from gensor_gym.operators.bodies import BODIES
from gensor_gym.operators.types import ITEM_BYTES, Access

__all__ = ["Line", "as_image", "as_text", "loop_nest"]

_NOTE_COLUMN = 44


@dataclass(frozen=True)
class Line:
    """A line of pseudo-code and the number of loops around it."""

    depth: int
    text: str
    note: str

    def __str__(self) -> str:
        """Return the line's indented text, then its note in a column of its own."""
        line = "  " * self.depth + self.text
        return f"{line:<{_NOTE_COLUMN}} # {self.note}" if self.note else line


class _Page:
    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.depth = 0

    def write(self, text: str, note: str = "") -> None:
        self.lines.append(Line(self.depth, text, note))

    def loop(self, name: str, count: int, note: str) -> None:
        """Add the header of a loop and indent the lines after it. A loop that runs once is omitted."""
        if count > 1:
            self.write(f"for {name} in {count}:", note)
            self.depth += 1


def as_text(graph: ConstructionGraph, schedule: Schedule) -> str:
    """Return a schedule as text: tiles, loop nest as pseudo-code, resources, and time by the model.

    Loops that run once are left out. Counts are rounded up, so the last tile of an axis may reach beyond the extent.
    """
    program = lower(graph.operator, schedule, graph.hardware)
    nest = map(str, loop_nest(program))
    return "\n".join([*_head(graph, schedule, program), "", *nest, "", *_foot(graph, schedule)])


def loop_nest(program: Program) -> list[Line]:
    """Return the lines of a program's pseudo-code: its loops, outermost first, and the statements between them."""
    page = _Page()
    (_gpu_loops if program.hardware.kind == "gpu" else _cpu_loops)(page, program)
    return page.lines


def _head(graph: ConstructionGraph, schedule: Schedule, program: Program) -> list[str]:
    names = LEVEL_NAMES[graph.hardware.kind]
    table = [("", [axis.name for axis in program.operator.axes])]
    table += [(name, [str(n) for n in tile]) for name, tile in zip(names, program.tiles, strict=True)]
    if any(v > 1 for v in program.vthread):
        table.insert(1, ("virtual threads", [str(v) for v in program.vthread]))
    table.append(("extent", [str(n) for n in program.operator.extents]))
    widths = [max(len(cells[a]) for _, cells in table) for a in range(len(program.operator.axes))]
    rows = [f"{name:<16}" + "  ".join(c.rjust(w) for c, w in zip(cells, widths, strict=True)) for name, cells in table]
    knobs = " ".join(
        f"{knob.name}={program.knob(knob.name)}" for knob in KNOBS if program.knob(knob.name) != knob.default
    )
    return [
        f"{graph.operator} on {graph.hardware.name}",
        f"under construction: the {names[schedule.level]}",
        "",
        *rows,
        f"{'knobs':<16}{knobs or 'as by default'}",
    ]


def _foot(graph: ConstructionGraph, schedule: Schedule) -> list[str]:
    if not graph.is_legal(schedule):
        return [
            "resources  " + ", ".join(str(use) for use in uses(graph, schedule)),
            "latency    infinite: not legal here",
        ]
    seconds = graph.latency(schedule)
    over = f"{seconds / graph.floor:.3g} x the roofline floor"
    return [
        "resources  " + ", ".join(str(use) for use in uses(graph, schedule)),
        f"spread     {spread(graph, schedule)}",
        f"latency    {in_seconds(seconds)} by the model, {over}, bound by {bound(graph, schedule)}",
    ]


def _gpu_loops(page: _Page, program: Program) -> None:
    op, (register, block), names = program.operator, program.tiles, [axis.name for axis in program.operator.axes]
    for a in op.spatial:
        page.loop(f"{names[a]}.block", program.grid[a], f"blocks, {block[a]} of {op.extents[a]} each")
    page.loop("slice", program.knob("split_k"), "blocks: parts of the reduction, added up by a second kernel")
    for a in op.spatial:
        page.loop(f"{names[a]}.thread", program.threads[a], f"threads, {register[a]} of {block[a]} each")
    page.loop("share", program.knob("reduce_threads"), "threads that share every output element")
    tile = ", ".join(str(register[a]) for a in op.spatial)
    if op.reduce:
        page.write(f"{op.output.name}.registers[{tile}] = {_start(program)}")
    outside = page.depth
    for a in op.reduce:
        slices = "its part of the " if program.knob("split_k") > 1 else ""
        page.loop(f"{names[a]}.step", program.grid[a], f"{slices}reduction, {block[a]} of {op.extents[a]} at a time")
    staged = [read for read in op.reads if is_staged(op, read)]
    for read in staged:
        _copy(page, program, read, 1, "shared", _staging_note(program))
    if staged:
        page.write("barrier")
    for a in op.reduce:
        page.loop(f"{names[a]}.chunk", block[a] // register[a], f"{_points(register[a])}, {_unrolled(program)}")
    for a in op.spatial:
        page.loop(f"{names[a]}.vthread", program.vthread[a], "virtual threads, strided apart")
    for a in (*op.spatial, *op.reduce):
        page.loop(f"{names[a]}.inner", register[a] // program.vthread[a], "registers")
    page.write(_statement(program))
    page.depth = outside
    _store(page, program)


def _cpu_loops(page: _Page, program: Program) -> None:
    op, (register, near, task), names = program.operator, program.tiles, [axis.name for axis in program.operator.axes]
    for a in op.spatial:
        page.loop(f"{names[a]}.task", program.grid[a], f"tasks over the cores, {task[a]} of {op.extents[a]} each")
    page.loop("slice", program.knob("thread_split"), "tasks: parts of the reduction, added up at the end")
    outside = page.depth
    for a in op.reduce:
        page.loop(f"{names[a]}.task", program.grid[a], f"reduction, {task[a]} of {op.extents[a]} at a time")
    for read, knob in zip(op.reads, ("pack_a", "pack_b"), strict=False):
        if program.knob(knob):
            _copy(page, program, read, 2, "packed", "copied next to each other in the order of use")
    for a in (*op.spatial, *op.reduce):
        page.loop(f"{names[a]}.l1", task[a] // near[a], f"L1 tile, {near[a]} of {task[a]} each")
    for a in op.spatial:
        page.loop(f"{names[a]}.tile", near[a] // register[a], f"register tile, {register[a]} of {near[a]} each")
    lanes = vector_axis(op, program.knob("convolution"))
    if op.reduce:
        again = any(program.grid[a] > 1 or task[a] > near[a] for a in op.reduce)
        tile = ", ".join(str(register[a]) for a in op.spatial)
        page.write(f"{op.output.name}.registers[{tile}] = {_start(program)}{', later partial sums' if again else ''}")
    inside = page.depth
    for a in op.reduce:
        page.loop(f"{names[a]}.chunk", near[a] // register[a], f"{_points(register[a])}, {_unrolled(program)}")
    for a in (*op.spatial, *op.reduce):
        vectors = f", in vectors of {program.hardware.lanes} lanes" if a == lanes else ""
        page.loop(f"{names[a]}.inner", register[a], f"registers{vectors}")
    page.write(_statement(program))
    page.depth = inside if op.reduce else outside
    _store(page, program)


def _copy(page: _Page, program: Program, read: Access, level: int, where: str, note: str) -> None:
    box = program.box(read, level)
    shape = ", ".join(map(str, box.shape))
    size = in_bytes(box.size * ITEM_BYTES[read.tensor.dtype])
    page.write(f"{read.tensor.name}.{where}[{shape}] = {read.tensor.name}[..]", f"{size}, {note}")


def _staging_note(program: Program) -> str:
    layout = ("rows as they are", "rows padded", "rows swizzled")[program.knob("shared_layout")]
    return f"staged {program.knob('vector')} elements at a time where aligned, {layout}"


def _points(count: int) -> str:
    return f"{count} consecutive points each" if count > 1 else "point by point"


def _unrolled(program: Program) -> str:
    times = program.knob("unroll")
    return f"unrolled {times} times" if times > 1 else "not unrolled"


def _start(program: Program) -> str:
    return f"{program.operator.reduction.identity:g}"


def _statement(program: Program) -> str:
    op = program.operator
    out, reads = f"{op.output.name}.registers", [read.tensor.name for read in op.reads]
    if op.body == "map":
        value = f"{op.function}({', '.join(reads)})"
        return f"{op.output.name} = {_finished(program, value)}"
    return op.reduction.taken(out, BODIES[op.body].term.format(*reads), op.reduction.name).removesuffix(";")


def _finished(program: Program, value: str) -> str:
    for stage in program.operator.epilogue:
        value = f"{stage.name}({value})"
    return value


def _store(page: _Page, program: Program) -> None:
    """Write the line that stores finished results from registers, with the division and the epilogue.

    Operators without a reduction store in their only statement, so the line is left out.
    """
    op = program.operator
    if not op.reduce:
        return
    value = f"{op.output.name}.registers" + (f" / {op.divisor}" if op.divisor != 1 else "")
    page.write(f"{op.output.name}[..] = {_finished(program, value)}")
