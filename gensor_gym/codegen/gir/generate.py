"""C generator for a row nest's schedule: one parallel loop over the rows for each kernel of the instruction graph."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gensor_gym.codegen.c.codegen import LINE, headers
from gensor_gym.codegen.c.text import Lines, round_up
from gensor_gym.codegen.gir.across import AcrossPrinter
from gensor_gym.codegen.gir.elements import Element, element_of
from gensor_gym.codegen.gir.inputs import C_TYPES, helpers
from gensor_gym.codegen.gir.parts import join_function
from gensor_gym.codegen.gir.rows import RowPrinter, c_name
from gensor_gym.codegen.gir.scattered import scatter_loop
from gensor_gym.codegen.gir.shapes import AcrossShape, RowShape
from gensor_gym.codegen.kernel import WHOLE, Kernel, Launch
from gensor_gym.gir.igraph import KernelGraph
from gensor_gym.gir.lowering import Lowered, lower
from gensor_gym.gir.nest import RowNest
from gensor_gym.gir.parts import rows_of
from gensor_gym.gir.placement import Level
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.hardware.types import Hardware

_FENCE = """#if defined __SSE__
    __builtin_ia32_sfence();
#endif"""


@dataclass(frozen=True)
class GirProgram:
    """A schedule of a row nest (a fused operator as loops over rows and columns) on a machine."""

    nest: RowNest
    schedule: GirSchedule
    hardware: Hardware

    @cached_property
    def lowered(self) -> Lowered:
        """The instruction graph of the nest under the schedule."""
        return lower(self.nest, self.schedule.placement(len(self.nest.crossing)))

    @property
    def element(self) -> Element:
        """Type of the numbers that the row nest computes."""
        return element_of(self.nest)

    @property
    def shape(self) -> RowShape:
        """Rows, vectors and lanes of a full step; remaining rows are computed in steps of one row."""
        value = self.schedule.value
        if rows_of(self.nest, value("vector")) > 1:
            return AcrossShape(value("rows") * value("tile"), 1, value("vector"), False)
        return RowShape(value("rows"), value("tile"), value("vector"), bool(value("streaming")))

    @property
    def rows_of_task(self) -> int:
        """Number of rows that one task computes."""
        return self.shape.rows * self.shape.across * self.schedule.value("loop")

    @property
    def tasks(self) -> int:
        """Number of tasks into which one kernel divides the rows."""
        return -(-self.nest.rows // self.rows_of_task)


def generate_gir(program: GirProgram) -> Kernel:
    """Generate the C kernel for a schedule of a row nest (a fused operator as loops over rows and columns).

    ValueError if no code can be generated for the memory levels of its values.
    """
    lowered = program.lowered
    if lowered.fault:
        raise ValueError(f"{program.nest.graph.name}: {lowered.fault}")
    layout = _Layout(program)
    parts = [_struct(program, layout)]
    for number in range(len(lowered.kernels)):
        parts += _kernel(program, layout, number)
    parts.append(_entry(program, layout))
    parts.insert(0, helpers(program.nest, "\n".join(parts)))
    body = "\n".join(parts)
    head = (Path(__file__).parents[1] / "runtime" / "runtime.h").read_text()
    text = program.element.prelude(body) + "\n" + body
    title = f"/* {program.nest.graph} on {program.hardware.name}: {program.schedule}. */\n"
    source = "\n".join([title + headers(text) + head, text])
    canonical = program.nest.parts == program.nest.together == 1 and program.nest.scattered is None  # tasks are rows, in order
    descending = all(list(to.rows) == sorted(to.rows, reverse=True) for _, to in program.nest.stores)
    alone = len(lowered.kernels) == 1 and canonical and descending
    rows = program.rows_of_task if alone else 0
    return Kernel(program.nest.graph, "c", program.hardware.arch, source, (Launch(WHOLE),), layout.nbytes, task_rows=rows)


@dataclass(frozen=True)
class _Layout:
    """Layout of the workspace, in elements from an aligned start.

    In order, it has tensors that one kernel writes for a later one, partial reductions, and scratch memory of threads.
    """

    program: GirProgram

    @property
    def line(self) -> int:
        return LINE // self.program.element.nbytes

    @cached_property
    def tensors(self) -> dict[str, int]:
        """Name -> offset of every tensor that one kernel writes and a later kernel reads."""
        found, place = {}, 0
        for buffer in self.program.lowered.spilled:
            found[buffer.name] = place
            place += round_up(buffer.elements, self.line)
        return found

    @cached_property
    def spilled(self) -> int:
        return sum(round_up(buffer.elements, self.line) for buffer in self.program.lowered.spilled)

    @cached_property
    def partials(self) -> int:
        """Number of elements for the partial reductions of parts of rows, in the kernel with most reductions.

        They come after `tensors`.
        """
        if self.program.nest.parts == 1:
            return 0
        most = max(_reductions(kernel) for kernel in self.program.lowered.kernels)
        return round_up(most * self.program.nest.rows, self.line)

    def scratch(self, number: int) -> dict[str, int]:
        """Return name -> offset of each row buffer of kernel `number` in a thread's scratch memory."""
        found, place = {}, 0
        for buffer in self.program.lowered.kernels[number].buffers(Level.SRAM):
            found[buffer.name] = place
            place += self.program.shape.rows * buffer.elements
        return found

    @cached_property
    def unit(self) -> int:
        rows = self.program.shape.rows
        kernels = self.program.lowered.kernels
        return max(rows * sum(buffer.elements for buffer in kernel.buffers(Level.SRAM)) for kernel in kernels)

    @property
    def nbytes(self) -> int:
        elements = self.spilled + self.partials + self.program.hardware.units * self.unit
        return self.program.element.nbytes * elements + LINE if elements else 0


def _struct(program: GirProgram, layout: _Layout) -> str:
    graph, lines, item = program.nest.graph, Lines(), program.element.c
    with lines.block("struct call"):
        lines.add(*(f"const {C_TYPES[value.dtype]} *{c_name(value.name)};" for value in graph.inputs))
        lines.add(*(f"{C_TYPES[value.dtype]} *{c_name(value.name)};" for value in graph.outputs))
        lines.add(*(f"{item} *{c_name(name)};" for name in layout.tensors))
        lines.add(f"{item} *partials, *scratch;" if layout.partials else f"{item} *scratch;")
        lines.add(*(["long owners;"] if program.nest.scattered else []))
    return str(lines).rstrip("\n") + ";\n"


def _kernel(program: GirProgram, layout: _Layout, number: int) -> list[str]:
    nest, shape, rows = program.nest, program.shape, program.nest.rows
    unit = shape.across
    whole = [shape.rows] if rows >= shape.rows * unit else []
    sizes = whole + ([1] if rows % (shape.rows * unit) or (nest.last and shape.rows > 1) else [])
    kernel, scratch = program.lowered.kernels[number], layout.scratch(number)
    texts = []
    for size in sizes:
        printer = AcrossPrinter if unit > 1 else RowPrinter
        of_size = dataclasses.replace(shape, rows=size)
        texts.append(printer(nest, kernel, of_size, scratch).function(f"kernel{number}_rows{size}"))
    if nest.last:
        of_last = dataclasses.replace(nest, columns=nest.last, last=0)
        shape_of_last = dataclasses.replace(shape, rows=1)
        texts.append(RowPrinter(of_last, kernel, shape_of_last, scratch).function(f"kernel{number}_last"))
    if (to := nest.scattered) is not None:
        return [*texts, scatter_loop(nest, to, f"call->{c_name(to.tensor)}", f"kernel{number}")]
    lines = Lines()
    with lines.block(f"static void kernel{number}(void *context, long index, int thread)"):
        lines.add("const struct call *const call = context;")
        lines.add(f"{program.element.c} *const scratch = call->scratch + (long)thread * {layout.unit};")
        lines.add(f"const long last = least((index + 1) * {program.rows_of_task}, {rows});")
        lines.add(f"long row = index * {program.rows_of_task};")
        steps = [f"row += {size * unit}) kernel{number}_rows{size}(call, scratch, row);" for size in sizes]
        if nest.last:
            with lines.block("while (row < last)"):
                lines.add(f"const long equal = least(last, row + {nest.parts - 1} - row % {nest.parts});")
                lines.add(*(f"for (; row + {size} <= equal; {step}" for size, step in zip(sizes, steps, strict=True)))
                lines.add(f"if (row < last) kernel{number}_last(call, scratch, row++);")
        else:
            lines.add(*(f"for (; row + {size * unit} <= last; {step}" for size, step in zip(sizes, steps, strict=True)))
    text = str(lines)
    if shape.streaming and "stream_" in "".join(texts):
        text = text.rstrip("\n").removesuffix("}") + _FENCE + "\n}\n"
    return [*texts, text] + ([join_function(nest, kernel, f"join{number}")] if _joins(program, number) else [])


def _reductions(kernel: KernelGraph) -> int:
    return sum(i.kind == "reduce" for one in kernel.passes for i in one.along)


def _joins(program: GirProgram, number: int) -> bool:
    return program.nest.parts > 1 and _reductions(program.lowered.kernels[number]) > 0


def _entry(program: GirProgram, layout: _Layout) -> str:
    graph, lines, item = program.nest.graph, Lines(), program.element.c
    arguments = "const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime"
    several = len(graph.returns) > 1
    with lines.block(f"void {WHOLE}({arguments})"):
        fields = [f".{c_name(value.name)} = inputs[{place}]" for place, value in enumerate(graph.inputs)]
        given = [f"((void *const *)output)[{place}]" if several else "output" for place in range(len(graph.returns))]
        fields += [f".{c_name(name)} = {text}" for name, text in zip(graph.returns, given, strict=True)]
        lines.add(f"struct call call = {{{', '.join(fields)}}};")
        lines.add(f"{item} *const aligned = ({item} *)(((uintptr_t)workspace + {LINE - 1}) & ~(uintptr_t){LINE - 1});")
        lines.add(*(f"call.{c_name(name)} = aligned + {place};" for name, place in layout.tensors.items()))
        lines.add(*([f"call.partials = aligned + {layout.spilled};"] if layout.partials else []))
        lines.add(f"call.scratch = aligned + {layout.spilled + layout.partials};", "struct gg_runtime team = *runtime;")
        lines.add(f"team.threads = (int)least(team.threads, {program.hardware.units});")
        lines.add(*(["call.owners = team.threads;"] if program.nest.scattered else []))
        tasks = "call.owners" if program.nest.scattered else program.tasks
        for number in range(len(program.lowered.kernels)):
            lines.add(f"team.parallel(&team, kernel{number}, &call, {tasks});")
            lines.add(*([f"join{number}(&call);"] if _joins(program, number) else []))
    return str(lines)
