"""C text of two parts of a shifted matrix product (`c/fuse.py`): the copy of its input, and the store without pixels in gaps."""

from __future__ import annotations

from gensor_gym.codegen.c.elements.quantized import finished, of_written
from gensor_gym.codegen.c.fuse import Shift
from gensor_gym.codegen.c.layout.operands import Operand
from gensor_gym.codegen.c.micro.finish import epilogue_lines, result_name, results, row_guard
from gensor_gym.codegen.c.operand import Reader, count, stored_literal, tile_start
from gensor_gym.codegen.c.plan import Chunk, LoopPlan
from gensor_gym.codegen.c.text import Lines, linear

COPY_ROW = """/* packed[i] = row[low + i * step] for i < count; the fill value where low + i * step is not in 0..size-1. */
static inline void copy_row(const {item} *row, long low, long size, long step, {item} *packed, long count, {item} fill) {
    const long begin = least(low < 0 ? (step - 1 - low) / step : 0, count);
    const long end = least(most((size - low + step - 1) / step, begin), count);
    for (long i = 0; i < begin; i++) packed[i] = fill;
    long i = begin;
    if (step == 1) {
        if (end > begin) memcpy(packed + begin, row + low + begin, (unsigned long)(end - begin) * sizeof *packed);
        i = end;
    }
{pairs}    for (; i < end; i++) packed[i] = row[low + i * step];
    for (i = most(i, begin); i < count; i++) packed[i] = fill;
}
"""
_PAIRS = """    for (; step == 2 && i + {lanes} <= end; i += {lanes}) {
        const {item} *const first = row + low + i * 2;
        store_{lanes}(packed + i, even_joined_{lanes}(load_{lanes}(first), load_{lanes}(first + {lanes} - 1)));
    }
"""


def shift_constants(plan: LoopPlan) -> str:
    """Return C tables of the shifts by window row or window column, for those that are not multiples of a constant."""
    shift, text = plan.shift, ""
    for read in plan.reads:
        for axis in read.tables if shift is not None else ():
            taps = ", ".join(map(str, _taps(plan, shift, axis)))
            text += f"static const int {read.name}_{plan.axes[axis]}_shift[] = {{{taps}}};\n"
    return text


def _taps(plan: LoopPlan, shift: Shift | None, axis: int) -> tuple[int, ...]:
    assert shift is not None
    return shift.taps[axis - plan.op.reduce[-2]]


def copy_row(plan: LoopPlan, item: str) -> str:
    """Return the C helper that copies a row of pixels with its padding; `item` is the C type of an element."""
    lanes = plan.program.hardware.lanes
    pairs = _PAIRS.replace("{lanes}", str(lanes)) if item == "float" and lanes >= 4 else ""
    return COPY_ROW.replace("{pairs}", pairs).replace("{item}", item)


def plane_function(plan: LoopPlan, operand: Operand) -> str:
    """Return the C function `pack_NAME`, which copies a task's rows of one image and channel, with padding."""
    lines, shift = Lines(), plan.shift
    assert shift is not None
    item, (height, width) = operand.c_type, operand.access.tensor.shape[-2:]
    fill = stored_literal(plan.op.pad_value, operand)
    tall, wide = shift.phases
    lines.add(f"/* One plane of {operand.name}: {shift.rows} rows from output row `line` on, at a pitch of {shift.pitch}. */")
    head = f"static void pack_{operand.name}(const {item} *image, {item} *packed, long line)"
    with lines.block(head):
        for part, (h, w) in enumerate((h, w) for h in tall for w in wide):
            first = linear([(shift.stride[0], "line")], h - shift.padding[0])
            with lines.block(f"for (long i = 0; i < {shift.rows}; i++)"):
                lines.add(f"const long row = {linear([(shift.stride[0], 'i')])} + {first};")
                place = linear([(shift.pitch, "i")], part * shift.part)
                lines.add(f"const long size = image && inside(row, {height}) ? {width} : 0;")
                source = f"image + (size ? row * {width} : 0)" if height > 1 else "image"
                low = w - shift.padding[1]
                lines.add(f"copy_row({source}, {low}, size, {shift.stride[1]}, packed + {place}, {shift.pitch}, {fill});")
            slack = shift.part - shift.rows * shift.pitch
            if slack:
                start = part * shift.part + shift.rows * shift.pitch
                lines.add(f"for (long i = {start}; i < {start + slack}; i++) packed[i] = {fill};")
    return str(lines)


def planes_call(plan: LoopPlan, operand: Operand, starts: list[str], line: str, target: str) -> list[str]:
    """Return C statements that copy the planes of all images and channels of a task to `target`.

    `starts` holds the first image and channel, `line` the first row of the output; all are C texts.
    """
    packing = operand.packing
    assert packing is not None
    lines = Lines()
    heads = [f"for (long i{d} = 0; i{d} < {packing.shape[d]}; i{d}++)" for d in range(2)]
    with lines.blocks(heads):
        call = plane_call(operand, starts, line, target, ["i0", "i1"])
        lines.add(call)
    return str(lines).rstrip("\n").split("\n")


def plane_call(operand: Operand, starts: list[str], line: str, target: str, steps: list[str]) -> str:
    """Return the C statement that copies the plane of one image and channel.

    The image and channel are `starts`, those of the first plane, plus `steps`.
    """
    packing, access = operand.packing, operand.access
    assert packing is not None
    height, width = access.tensor.shape[-2:]
    places = [linear([(1, start), (1, step)]) for start, step in zip(starts, steps, strict=True)]
    channels = access.view[1]
    image = f"call->{operand.name} + (({places[0]}) * {channels} + {places[1]}) * {height * width}"
    tests = [f"{places[d]} < {access.view[d]}" for d in range(2) if packing.leaves[d]]
    image = f"{' && '.join(tests)} ? {image} : 0" if tests else image
    place = linear([(packing.pitch[d], steps[d]) for d in range(2)])
    return f"pack_{operand.name}({image}, {target} + {place}, {line});"


def store_rows(lines: Lines, reader: Reader) -> None:
    """Write the epilogue and the stores of a register tile, row by row of the image, without the pixels in gaps between rows."""
    plan, shift = reader.plan, reader.plan.shift
    assert shift is not None
    lanes = plan.program.hardware.lanes
    width, rows, name = plan.tiles[0][plan.vector], len(plan.rows), plan.axes[plan.vector]
    lines.add(f"{plan.accumulator} lanes[{rows}][{width + lanes}];")
    for r, c, chunk in results(plan):
        target, value = f"lanes[{r}][{chunk.offset}]", result_name(plan, r, c)
        lines.add(f"{target} = {value};" if chunk.width == 1 else f"store_{chunk.width}(&{target}, {value});")
    for operand in plan.stages:
        lines.add(*([] if operand is None else reader.prologue(operand)))
    start = tile_start(plan, plan.vector)
    lines.add(
        f"const long {name}_begin = {start}, {name}_end = least({linear([(1, start)], width)}, {count(plan, plan.vector)});"
    )
    head = f"for (long at = {name}_begin, line = at / {shift.pitch}; at < {name}_end; line++, at = line * {shift.pitch})"
    with lines.block(head):
        lines.add(f"const long column = at - line * {shift.pitch}, size = least({name}_end - at, {shift.columns} - column);")
        with lines.block(f"for (long i = 0; i < size; i += {lanes})"):
            lines.add(f"const long place = (t->line + line) * {shift.columns} + column + i, left = size - i;")
            for r, row in enumerate(plan.rows):
                guard = row_guard(reader, row)
                with lines.block(guard.strip() or ""):
                    _store_row(lines, reader, r, row, Chunk(0, lanes))


def _store_row(lines: Lines, reader: Reader, r: int, row: tuple[int, ...], chunk: Chunk) -> None:
    plan, lanes = reader.plan, chunk.width
    source = f"&lanes[{r}][at - {plan.axes[plan.vector]}_begin + i]"
    value = f"load_{lanes}({source})" if lanes > 1 else f"*({source})"
    lines.add(f"vec{lanes} value = {value};")
    loads: list[str | None] = []
    for operand in plan.stages:
        if operand is None:
            loads.append(None)
        elif operand.lane_stride == 0:
            loads.append(reader.value(operand, row, chunk))
        else:
            index = linear([(1, reader.index(operand, row, chunk)), (1, "place")])
            loads.append(f"load_masked{operand.ending}_{lanes}({operand.name} + {index}, 0, left, 0)")
    lines.add(*epilogue_lines(plan, "value", lanes, loads))
    index = linear([(1, reader.index(plan.output, row, chunk)), (1, "place")])
    value = finished(plan, "value")
    lines.add(f"{of_written(plan, 'store_masked')}_{lanes}({plan.output.name} + {index}, 0, left, {value});")
