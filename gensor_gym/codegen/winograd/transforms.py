"""C text of the transformations of Winograd's algorithm: of filters, of image tiles, and of sums to results with the epilogue."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gensor_gym.codegen.c.loops import call_tile
from gensor_gym.codegen.c.micro.finish import finish, result_name, store
from gensor_gym.codegen.c.micro.kernel import parameters
from gensor_gym.codegen.c.operand import Reader
from gensor_gym.codegen.c.plan import LoopPlan, make_plan
from gensor_gym.codegen.c.text import Lines, add
from gensor_gym.codegen.c.variants import Variant, variants
from gensor_gym.codegen.program import Program
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.structure import LEVELS
from gensor_gym.operators.kinds.winograd import FILTER, INPUT, OUTPUT, POINTS, SPAN, TAPS, TILE, padding_of, tiles_of
from gensor_gym.winograd.layout import Layout

ROWS, COLUMNS = 2, 3
"""Indices of the axes of rows and columns of the output among the axes of a convolution."""


@dataclass(frozen=True)
class ResultPlan(LoopPlan):
    """Plan of a register tile with the results of one image tile in one vector of channels.

    Its tiles never begin earlier to stay inside the output, because tiles of sums begin at even rows and columns.
    """

    shortened = -1

    def moves_back(self, axis: int) -> bool:
        """Return False."""
        return False


def results_of(layout: Layout) -> ResultPlan:
    """Plan the register tiles of results, which read the epilogue's operands and store the output. They read no image."""
    op, hw = layout.op, layout.hardware
    register = tuple(
        hw.lanes if a == op.channel_axis else TILE if a in (ROWS, COLUMNS) else 1 for a in range(len(op.axes))
    )
    task = tuple(-(-extent // size) * size for extent, size in zip(op.extents, register, strict=True))
    tiles = (register, *(task,) * (LEVELS["cpu"] - 1))
    knobs = {knob.name: knob.values[0] for knob in KNOBS} | {"convolution": 1, "pack_b": 1}
    plan = make_plan(Program(op, hw, tiles, (1,) * len(op.axes), tuple(knobs.items())))
    named = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    return ResultPlan(**named | {"reads": tuple(dataclasses.replace(read, guarded=()) for read in plan.reads)})


def sum_of(coefficients: Sequence[float], names: Sequence[str]) -> str:
    """Return the C text of the sum of names with coefficients 0, 1 and -1. A name with 1 comes first."""
    terms = sorted((-c, place, name) for place, (c, name) in enumerate(zip(coefficients, names, strict=True)) if c)
    first, *others = terms
    return first[2] + "".join(f" {'-' if minus > 0 else '+'} {name}" for minus, _, name in others)


def scaled_sum_of(coefficients: Sequence[float], names: Sequence[str]) -> str:
    """Return the C text of a sum of doubles with any coefficients."""
    terms = [name if c == 1 else f"{float(c)!r} * {name}" for c, name in zip(coefficients, names, strict=True) if c]
    return " + ".join(terms).replace("+ -", "- ")


def filters_function(layout: Layout, weights: str) -> str:
    """Return the C function `share_weights`, which transforms the filters of panel `index`, in double precision."""
    lines, c, k, panel = Lines(), layout.channels, layout.outputs, layout.panel
    last = -(-(k - (layout.groups - 1) * layout.group) // panel) * panel
    lines.add("/* Transforms the filters of one panel of output channels. */")
    with lines.block("static void share_weights(void *context, long index, int thread)"):
        lines.add("const struct call *const call = context;", "(void)thread;")
        lines.add(f"const long first = index * {panel}, group = first / {layout.group};")
        plane = str(c * layout.group)
        if last != layout.group:
            plane = f"(group < {layout.groups - 1} ? {c * layout.group} : {c * last})"
        lines.add(f"const long plane = {plane}, width = least({panel}, {k} - first);")
        start = f"group * {POINTS * c * layout.group} + first % {layout.group} * {c}"
        lines.add(f"float *const to = call->filters + {start};")
        with lines.blocks([f"for (long i = 0; i < {c}; i++)", "for (long lane = 0; lane < width; lane++)"]):
            lines.add(f"const float *const g = call->{weights} + ((first + lane) * {c} + i) * {TAPS**2};")
            lines.add(f"float *const at = to + i * {panel} + lane;")
            for row in range(SPAN):
                for s in range(TAPS):
                    taps = [f"(double)g[{r * TAPS + s}]" for r in range(TAPS)]
                    lines.add(f"const double h{row}{s} = {scaled_sum_of(FILTER[row], taps)};")
            for row in range(SPAN):
                for column in range(SPAN):
                    value = scaled_sum_of(FILTER[column], [f"h{row}{s}" for s in range(TAPS)])
                    lines.add(f"at[{row * SPAN + column} * plane] = (float)({value});")
    return str(lines)


def image_function(layout: Layout) -> str:
    """Return the C function `transform`, which computes the points of `count` image tiles from tile `first` on."""
    lines, lanes, c = Lines(), layout.hardware.lanes, layout.channels
    (_, h, wide, _), (top, left) = layout.op.reads[0].view, padding_of(layout.op)
    whole = c // lanes * lanes
    lines.add("/* Transforms image tiles of all channels. */")
    with lines.block("static void transform(const float *const image, float *const points, long first, long count)"):
        tile_start(lines, layout, "first")
        with lines.block(f"for (long i = 0; i < count; i++, {_step(layout)})"):
            lines.add(f"const long row = {TILE} * down - {top}, column = {TILE} * across - {left};")
            lines.add(f"float *const at = points + i * {layout.row};")
            inside = f"row >= 0 && row + {SPAN} <= {h} && column >= 0 && column + {SPAN} <= {wide}"
            with lines.block(f"if ({inside})"):
                lines.add(f"const float *const from = image + ((picture * {h} + row) * {wide} + column) * {c};")
                _transformed(lines, layout, (0, whole), lambda a, b: add("from", str((a * wide + b) * c)))
                _transformed(lines, layout, (whole, c), lambda a, b: add("from", str((a * wide + b) * c)))
            with lines.block("else"):
                lines.add(f"static const float zeros[{c}] = {{0}};")
                for a in range(SPAN):
                    for b in range(SPAN):
                        place = f"image + ((picture * {h} + row + {a}) * {wide} + column + {b}) * {c}"
                        test = f"inside(row + {a}, {h}) && inside(column + {b}, {wide})"
                        lines.add(f"const float *const from_{a}{b} = {test} ? {place} : zeros;")
                _transformed(lines, layout, (0, whole), lambda a, b: f"from_{a}{b}")
                _transformed(lines, layout, (whole, c), lambda a, b: f"from_{a}{b}")
    return str(lines)


def _transformed(lines: Lines, layout: Layout, channels: tuple[int, int], place: Callable[[int, int], str]) -> None:
    """Write the transformation of the channels `channels` (begin, end); the last vector of all may be loaded in part."""
    begin, end = channels
    lanes = layout.hardware.lanes
    if begin == end:
        return
    cut = end - begin < lanes
    with lines.block(f"for (long ch = {begin}; ch < {end}; ch += {lanes})"):
        for b in range(SPAN):
            for a in range(SPAN):
                at = f"{place(a, b)} + ch"
                value = f"load_masked_{lanes}({at}, 0, {end - begin}, 0.0f)" if cut else f"load_{lanes}({at})"
                lines.add(f"const vec{lanes} d{a}{b} = {value};")
            for a in range(SPAN):
                lines.add(f"const vec{lanes} e{a}{b} = {sum_of(INPUT[a], [f'd{i}{b}' for i in range(SPAN)])};")
        for a in range(SPAN):
            for b in range(SPAN):
                value = sum_of(INPUT[b], [f"e{a}{j}" for j in range(SPAN)])
                lines.add(f"store_{lanes}(at + {(a * SPAN + b) * layout.plane} + ch, {value});")


def tile_start(lines: Lines, layout: Layout, first: str) -> None:
    """Write the declarations of image, row and column of the tile with the number `first`, all in tiles."""
    _, down, across = tiles_of(layout.op)
    lines.add(f"long across = {first} % {across}, down = {first} / {across} % {down}, picture = {first} / {down * across};")


def _step(layout: Layout) -> str:
    """Return the C expression that moves to the next image tile."""
    _, down, across = tiles_of(layout.op)
    return f"across + 1 < {across} ? across++ : (across = 0, down + 1 < {down} ? down++ : (down = 0, picture++))"


def result_functions(layout: Layout, plan: ResultPlan) -> list[str]:
    """Return the C functions of the register tiles of results, and `results`, which calls them for a group of channels."""
    kinds, lines = variants(plan), Lines()
    n, k, p, q = (plan.axes[a] for a in range(4))
    lines.add("/* Results of a block's image tiles, in the channels of one group. */")
    arguments = "const struct call *const call, const float *const sums, long first, long count, long begin, long end"
    with lines.block(f"static void results({arguments})"):
        lines.add("struct task t;")
        for operand in (plan.output, *(stage for stage in plan.stages if stage is not None)):
            start = sum(s * o for s, o in zip(operand.access.strides(), operand.access.offset, strict=True))
            lines.add(f"t.{operand.name} = call->{operand.name};", f"t.{operand.name}_origin = {start};")
        tile_start(lines, layout, "first")
        with lines.block(f"for (long i = 0; i < count; i++, {_step(layout)})"):
            lines.add(f"const long {n} = picture, {p} = {TILE} * down, {q} = {TILE} * across;")
            lines.add(" ".join(f"(void){name};" for name in (n, p, q)))
            with lines.block(f"for (long {k} = begin; {k} < end; {k} += {layout.hardware.lanes})"):
                call_tile(lines, plan, kinds, f"sums + i * {layout.sum_row} + {k} - begin")
    return [*(_result(layout, kind) for kind in kinds), str(lines)]


def _result(layout: Layout, kind: Variant) -> str:
    """Return the C function of the results of one image tile in one vector of channels, which ends with the epilogue."""
    lines, plan = Lines(), kind.plan
    reader = Reader(plan, kind.edge)
    given = ["const struct task *t", "const float *sums", *(f"long {name}" for name in parameters(plan))]
    with lines.block(f"static inline void {kind.name}({', '.join(given)})"):
        lines.add(*reader.clamps(), *reader.prologue(plan.output, written=True))
        for c, chunk in enumerate(plan.chunks):
            w = chunk.width
            for point in range(POINTS):
                lines.add(f"const vec{w} m{c}_{point} = load_{w}({add('sums', str(point * layout.sum_plane + chunk.offset))});")
            for a in range(min(TILE, plan.tiles[0][ROWS])):
                for j in range(SPAN):
                    value = sum_of(OUTPUT[a], [f"m{c}_{i * SPAN + j}" for i in range(SPAN)])
                    lines.add(f"const vec{w} s{c}_{a}{j} = {value};")
            for r, row in enumerate(plan.rows):
                value = sum_of(OUTPUT[row[COLUMNS]], [f"s{c}_{row[ROWS]}{j}" for j in range(SPAN)])
                lines.add(f"vec{w} {result_name(plan, r, c)} = {value};")
        finish(lines, reader)
        store(lines, reader)
    return str(lines)


assert np.isin(np.concatenate([INPUT, OUTPUT]), (-1, 0, 1)).all()  # as `sum_of` expects
