"""C generator of convolutions by Winograd's algorithm.

A task transforms a block of image tiles to points, multiplies each plane of points by the transformed filters, and transforms the
sums to results, group by group of output channels. Points and sums stay in the thread's scratch memory.
"""

from __future__ import annotations

from pathlib import Path

from gensor_gym.chains.chain import Product
from gensor_gym.codegen.c.codegen import ALIGNED, ARGUMENTS, LINE, PREPACKED, headers
from gensor_gym.codegen.c.micro.vectors import prelude
from gensor_gym.codegen.c.text import Lines, add, round_up
from gensor_gym.codegen.chains.product import Ends, Operand, ProductPrinter
from gensor_gym.codegen.kernel import PACKS, WHOLE, Kernel, Launch
from gensor_gym.codegen.winograd.program import WinogradProgram
from gensor_gym.codegen.winograd.results import ResultPlan, Results
from gensor_gym.codegen.winograd.transforms import filters_function, image_function
from gensor_gym.operators.kinds.winograd import POINTS
from gensor_gym.winograd.layout import Layout

_FLOAT = 4


def generate_winograd(program: WinogradProgram) -> Kernel:
    """Generate the C kernel for a schedule of a convolution by Winograd's algorithm.

    Constant weights are transformed once, by an entry of their own.
    """
    op, layout = program.op, Layout(program.op, program.hardware, program.schedule)
    plan = (results := Results(layout)).plan
    image, weights = (f"input_{number}" for number in range(2))
    parts = [_structs(plan, image, weights), filters_function(layout, weights), image_function(layout)]
    parts += dict.fromkeys(text for group in _widths(layout) for text in _product(layout, group).functions(set(layout.sizes)))
    parts += [_products(layout, group, size) for group in _widths(layout) for size in layout.sizes]
    parts += [*results.functions(), _task(layout, image), _entry(layout, plan, False)]
    parts += [_entry(layout, plan, True), _packing_entry(layout, weights)] if op.frozen else []
    body = "\n".join(parts)
    text = prelude(body, "float", "float") + "\n" + body
    head = (Path(__file__).parents[1] / "runtime" / "runtime.h").read_text()
    title = f"/* {op} on {program.hardware.name}: {program.schedule}. */\n"
    source = "\n".join([title + headers(text) + head, text])
    entries = (Launch(PREPACKED if op.frozen else WHOLE),)
    return Kernel(op, "c", program.hardware.arch, source, entries, _nbytes(layout), PACKS if op.frozen else "")


def _filters_bytes(layout: Layout) -> int:
    return round_up(_FLOAT * layout.filters, LINE)


def _unit(layout: Layout) -> int:
    """Return the number of elements between the scratch memories of threads."""
    return round_up(layout.unit, LINE)


def _nbytes(layout: Layout) -> int:
    return _filters_bytes(layout) + _FLOAT * _unit(layout) * layout.hardware.units + LINE


def _widths(layout: Layout) -> tuple[int, ...]:
    """Return the numbers of output channels that groups have, the last group's last."""
    last = layout.outputs - (layout.groups - 1) * layout.group
    return (layout.group, last) if layout.groups > 1 and last != layout.group else (last,)


def _product(layout: Layout, columns: int) -> ProductPrinter:
    """Return the writer of the product of one plane of points with the filters of a group of output channels."""
    value, c = layout.schedule.value, layout.channels
    return ProductPrinter(
        "product", Product(layout.sizes[-1], columns, c), value("height"), value("vectors"), layout.hardware.lanes, c, True,
        Operand(layout.row, 1), Operand(1, 1), Operand(layout.sum_row, 1, padded=True), asks=True,
    )  # fmt: skip


def _structs(plan: ResultPlan, image: str, weights: str) -> str:
    lines = Lines()
    stages = [stage for stage in plan.stages if stage is not None]
    lines.add("/* What all tasks share. */")
    with lines.block("struct call"):
        lines.add(f"const float *{image};", f"const float *{weights};")
        lines.add(*(f"const {stage.c_type} *{stage.name};" for stage in stages))
        lines.add(f"float *{plan.output.name};", "float *filters;", "float *scratch;")
    call = str(lines).rstrip("\n") + ";\n\n"
    lines = Lines()
    lines.add("/* The tensors that register tiles of results access. */")
    with lines.block("struct task"):
        for operand in (*stages, plan.output):
            const = "" if operand is plan.output else "const "
            lines.add(f"{const}{operand.c_type} *{operand.name};", f"long {operand.name}_origin;")
    return call + str(lines).rstrip("\n") + ";\n"


def _products_name(columns: int, size: int) -> str:
    return f"products_{size}x{columns}"


def _products(layout: Layout, columns: int, size: int) -> str:
    lines, plane = Lines(), layout.channels * round_up(columns, layout.panel)
    arguments = "const float *const points, const float *const filters, float *const sums"
    with lines.block(f"static void {_products_name(columns, size)}({arguments})"):
        with lines.block(f"for (long point = 0; point < {POINTS}; point++)"):
            lines.add(f"const float *const a = points + point * {layout.plane};")
            lines.add(f"const float *const b = filters + point * {plane};")
            lines.add(f"float *const c = sums + point * {layout.sum_plane};")
            _product(layout, columns).block(lines, size, "a", "b", "c", Ends())
    return str(lines)


def _task(layout: Layout, image: str) -> str:
    lines, groups, apart = Lines(), layout.groups, layout.schedule.value("apart") == 1
    with lines.block("static void run_task(void *context, long index, int thread)"):
        lines.add("const struct call *const call = context;")
        lines.add(f"float *const points = call->scratch + (long)thread * {_unit(layout)};")
        lines.add(f"float *const sums = points + {POINTS * layout.plane};")
        lines.add(f"const long block = index{f' % {layout.blocks}' if apart and groups > 1 else ''};")
        rows, times = layout.tiles // layout.together, f" * {layout.together}" if layout.together > 1 else ""
        lines.add(f"const long first = block * {rows} / {layout.blocks}{times};")
        lines.add(f"const long count = (block + 1) * {rows} / {layout.blocks}{times} - first;")
        lines.add(f"transform(call->{image}, points, first, count);")
        loop = f"for (long group = 0; group < {groups}; group++)"
        with lines.block("" if apart or groups == 1 else loop):
            if apart or groups == 1:
                lines.add(f"const long group = {f'index / {layout.blocks}' if groups > 1 else '0'};")
            lines.add(f"const float *const filters = call->filters + group * {POINTS * layout.channels * layout.group};")
            lines.add(f"const long begin = group * {layout.group}, end = least(begin + {layout.group}, {layout.outputs});")
            _calls(lines, layout)
            lines.add("results(call, sums, first, count, begin, end);")
    return str(lines)


def _calls(lines: Lines, layout: Layout) -> None:
    """Write the choice of the products of the block's and the group's sizes."""
    kinds = [(columns, size) for columns in _widths(layout) for size in layout.sizes]
    for number, (columns, size) in enumerate(kinds):
        tests = [f"end - begin == {columns}"] if len(_widths(layout)) > 1 else []
        tests += [f"count == {size}"] if len(layout.sizes) > 1 else []
        call = f"{_products_name(columns, size)}(points, filters, sums);"
        head = f"if ({' && '.join(tests)}) " if number < len(kinds) - 1 else ""
        lines.add(("else " if number else "") + head + call)


def _entry(layout: Layout, plan: ResultPlan, prepacked: bool) -> str:
    lines = Lines()
    names = ["input_0", "input_1", *(stage.name for stage in plan.stages if stage is not None)]
    fields = [f".{name} = inputs[{place}]" for place, name in enumerate(names)]
    with lines.block(f"void {PREPACKED if prepacked else WHOLE}({ARGUMENTS})"):
        lines.add(f"struct call call = {{{', '.join([*fields, f'.{plan.output.name} = output'])}}};", ALIGNED)
        lines.add("call.filters = (float *)aligned;", f"call.scratch = (float *)({add('aligned', str(_filters_bytes(layout)))});")
        lines.add("/* The workspace holds buffers for so many threads. */", "struct gg_runtime team = *runtime;")
        lines.add(f"team.threads = (int)least(team.threads, {layout.hardware.units});")
        lines.add(*([] if prepacked else [_packing(layout, "team.", "&team")]))
        lines.add(f"team.parallel(&team, run_task, &call, {layout.tasks});")
    return str(lines)


def _packing(layout: Layout, runtime: str, address: str) -> str:
    return f"{runtime}parallel({address}, share_weights, &call, {-(-layout.outputs // layout.panel)});"


def _packing_entry(layout: Layout, weights: str) -> str:
    lines = Lines()
    with lines.block(f"void {PACKS}({ARGUMENTS})"):
        lines.add(f"struct call call = {{.{weights} = inputs[1]}};", "(void)output;", ALIGNED)
        lines.add("call.filters = (float *)aligned;", _packing(layout, "runtime->", "runtime"))
    return str(lines)
