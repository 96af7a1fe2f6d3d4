"""C text that combines reductions over parts of a row, then executes the row's scalar instructions (`gensor_gym.gir.parts`)."""

from __future__ import annotations

from gensor_gym.codegen.c.text import Lines
from gensor_gym.codegen.gir.elements import element_of
from gensor_gym.codegen.gir.expressions import number
from gensor_gym.codegen.gir.online import OVERFLOW
from gensor_gym.codegen.gir.rows import RowPrinter
from gensor_gym.codegen.gir.shapes import RowShape
from gensor_gym.gir.igraph import Instruction, KernelGraph, Pass
from gensor_gym.gir.nest import Online, RowNest


def join_function(nest: RowNest, kernel: KernelGraph, name: str) -> str:
    """Return the C function `name(const struct call *call)`.

    It combines the results of reductions on the parts of every row, and stores the row's scalars.
    """
    (one,) = kernel.passes
    reductions = [i for i in one.along if i.kind == "reduce"]
    places = {i.cell: place for place, i in enumerate(reductions)}
    before = tuple(i for i in kernel.before if i.target.is_held)
    printer = RowPrinter(nest, KernelGraph(before, (Pass((), one.after),)), RowShape(1, 1, 1, False), {})
    lines = printer.lines
    with (
        lines.block(f"static void {name}(const struct call *const call)"),
        lines.block(f"for (long row = 0; row < {nest.rows}; row += {nest.parts})"),
    ):
        printer.pointers()
        printer.numbers(before)
        for reduction in reductions:
            _join(lines, nest, reduction, places, f"{printer.names[reduction.cell]}_0")
        printer.numbers(one.after)
    return str(lines)


def _join(lines: Lines, nest: RowNest, reduction: Instruction, places: dict[str, int], name: str) -> None:
    """Write C that combines the results of a reduction on the parts of a row, and declares the result as variable `name`.

    Parts of an online sum are rescaled from the maximum of the part to that of the row, which is computed before. `places` has
    the index of each reduction among the stored partial results.
    """
    at = f"call->partials + {places[reduction.cell] * nest.rows} + row"
    element = element_of(nest)
    lines.add(f"const {element.c} *const {name}_of = {at};")
    if isinstance(reduction.body, Online):
        top = places[reduction.body.top] * nest.rows
        lines.add(f"const float *const {name}_top = call->partials + {top} + row;", f"float {name} = 0.0f;")
        whole = f"v_{reduction.body.top}_0"
        with lines.block(f"for (long part = 0; part < {nest.parts}; part++)"):
            lines.add(f"const float base = max_1({name}_top[part], {number(-OVERFLOW)});")
            lines.add(f"{name} += {name}_of[part] * exp_1(base - {whole});")
        return
    joined = element.joined(reduction.body, name, f"{name}_of[part]", 1)  # type: ignore[arg-type]
    lines.add(f"{element.c} {name} = {name}_of[0];", f"for (long part = 1; part < {nest.parts}; part++) {name} = {joined};")
