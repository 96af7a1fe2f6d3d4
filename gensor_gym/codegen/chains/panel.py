"""C generator for a panel: a product's kernel that also runs operations such as a layer norm on its finished rows.

`c/whole_rows.py` places these operations in the kernel.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gensor_gym.chains.panel import Panel
from gensor_gym.codegen.c.codegen import LINE, generate_c
from gensor_gym.codegen.c.text import Lines, round_up
from gensor_gym.codegen.c.whole_rows import WholeRows
from gensor_gym.codegen.gir.inputs import C_TYPES, helpers
from gensor_gym.codegen.gir.rows import RowPrinter, c_name
from gensor_gym.codegen.gir.shapes import RowShape
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import lower
from gensor_gym.gir.model import GirModel
from gensor_gym.gir.placement import Level
from gensor_gym.gir.rules import GirRules
from gensor_gym.gir.schedule import make_schedule
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware

_FLOAT = 4


@dataclass(frozen=True)
class PanelProgram:
    """A schedule of a panel (a product with a row nest after it) on a machine; the schedule is that of the product."""

    panel: Panel
    schedule: Schedule
    hardware: Hardware

    @cached_property
    def shape(self) -> RowShape:
        """Rows, vectors and lanes of one step of the row nest (the loops over the rows of the product).

        It is the shape for which the analytic model predicts the fewest cycles.
        """
        return row_shape(self.panel, self.hardware)

    @cached_property
    def buffers(self) -> dict[str, int]:
        """Offset of each of the row nest's buffers in a thread's scratch memory, in elements, by name of the buffer."""
        found, place = {}, 0
        for buffer in self.panel.lowered.kernels[0].buffers(Level.SRAM):
            found[buffer.name] = place
            place += self.shape.rows * buffer.elements
        return found

    @property
    def thread_bytes(self) -> int:
        """Size of a thread's scratch memory in bytes."""
        elements = sum(buffer.elements for buffer in self.panel.lowered.kernels[0].buffers(Level.SRAM))
        return round_up(_FLOAT * self.shape.rows * elements, LINE)


def row_shape(panel: Panel, hardware: Hardware) -> RowShape:
    """Choose rows, vectors and lanes of a step of the row nest (the loops over the rows of the product).

    It is the legal shape for which the analytic model predicts the fewest cycles.
    """
    names = ("vector", "rows", "tile")
    choices = [key for key in itertools.product((4, 8, 16), (1, 2, 4), (1, 2, 4)) if key[0] <= hardware.lanes]
    schedules = [make_schedule(dict(zip(names, key, strict=True)), panel.lowered.placement) for key in choices]
    rows = np.stack([schedule.row for schedule in schedules])
    busy = GirModel(panel.nest, hardware).terms(rows)[:, 2:6].sum(axis=1)  # arithmetic, chains, rows, spilling
    busy[~GirRules(panel.nest, hardware).fits(rows)] = np.inf
    vector, together, tile = choices[int(np.argmin(busy))]
    return RowShape(together, tile, vector, streaming=False)


def generate_panel(program: PanelProgram) -> Kernel:
    """Generate the C kernel for a schedule of a panel (a product with operations on its rows after it)."""
    panel = program.panel
    graph, made = panel.graph, panel.made
    number = {value.name: place for place, value in enumerate(graph.inputs)}
    read = [value for value in panel.nest.graph.inputs if value.name != made]
    several = len(graph.returns) > 1
    outputs = {name: f"((void *const *)output)[{n}]" if several else "output" for n, name in enumerate(graph.returns)}
    home = outputs[panel.home] if panel.home is not None else ""
    fields = [f"const {C_TYPES[value.dtype]} *{c_name(value.name)};" for value in read]
    written = dict.fromkeys([made, *panel.nest.graph.returns])
    fields += [f"float *{c_name(name)};" for name in written]
    given = [f".{c_name(value.name)} = inputs[{number[value.name]}]" for value in read]
    given += [f".{c_name(name)} = {outputs[name]}" for name in panel.nest.graph.returns]
    given += [f".{c_name(made)} = {home}"] if home else []
    functions = _functions(program)
    rows = WholeRows(
        computation=graph, order=tuple(number[name] for name in panel.reads), output=home,
        fields=tuple(fields), given=tuple(given), value_names=(c_name(made),),
        functions=tuple(filter(None, (helpers(panel.nest, "\n".join(functions)), *functions))),
        value_bytes=0 if home else round_up(panel.product.output.nbytes, LINE), thread_bytes=program.thread_bytes,
        step=program.shape.rows,
    )  # fmt: skip
    return generate_c(lower(panel.product, program.schedule, program.hardware), rows)


def _functions(program: PanelProgram) -> list[str]:
    panel, shape = program.panel, program.shape
    (kernel,) = panel.lowered.kernels
    sizes = list(dict.fromkeys((shape.rows, 1)))
    shapes = [dataclasses.replace(shape, rows=size) for size in sizes]
    printers = [RowPrinter(panel.lowered.nest, kernel, one, program.buffers) for one in shapes]
    texts = [printer.function(f"nest_rows{size}") for printer, size in zip(printers, sizes, strict=True)]
    lines = Lines()
    lines.add("/* What is done with rows of the product, once all their columns are finished. */")
    arguments = "const struct call *const call, const int thread, long row, const long end"
    with lines.block(f"static void rows_done({arguments})"):
        scratch = f"call->rows_scratch + thread * {program.thread_bytes // _FLOAT}L" if program.thread_bytes else "0"
        lines.add(f"float *const scratch = {scratch};", *([] if program.thread_bytes else ["(void)thread;"]))
        for size in sizes:
            lines.add(f"for (; row + {size} <= end; row += {size}) nest_rows{size}(call, scratch, row);")
    return [*texts, str(lines)]
