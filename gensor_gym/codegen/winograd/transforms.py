"""C text of the transformations of filters and of image tiles by Winograd's algorithm."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gensor_gym.codegen.c.text import Lines, add
from gensor_gym.operators.kinds.winograd import FILTER, INPUT, OUTPUT, POINTS, SPAN, TAPS, TILE, padding_of, tiles_of
from gensor_gym.winograd.layout import Layout


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
    lines, image = Lines(), layout.op.reads[0]
    (_, h, wide, c), (_, _, pixel, _), (top, left) = image.view, image.strides(), padding_of(layout.op)
    lines.add("/* Transforms image tiles of all channels. */")
    with lines.block("static void transform(const float *const image, float *const points, long first, long count)"):
        tile_start(lines, layout, "first")
        with lines.block(f"for (long i = 0; i < count; i++, {step(layout)})"):
            lines.add(f"const long row = {TILE} * down - {top}, column = {TILE} * across - {left};")
            lines.add(f"float *const at = points + i * {layout.row};")
            inside = f"row >= 0 && row + {SPAN} <= {h} && column >= 0 && column + {SPAN} <= {wide}"
            with lines.block(f"if ({inside})"):
                lines.add(f"const float *const from = image + ((picture * {h} + row) * {wide} + column) * {pixel};")
                _transformed(lines, layout, lambda a, b: add("from", str((a * wide + b) * pixel)))
            with lines.block("else"):
                lines.add(f"static const float zeros[{c}] = {{0}};")
                for a in range(SPAN):
                    for b in range(SPAN):
                        place = f"image + ((picture * {h} + row + {a}) * {wide} + column + {b}) * {pixel}"
                        test = f"inside(row + {a}, {h}) && inside(column + {b}, {wide})"
                        lines.add(f"const float *const from_{a}{b} = {test} ? {place} : zeros;")
                _transformed(lines, layout, lambda a, b: f"from_{a}{b}")
    return str(lines)


def _transformed(lines: Lines, layout: Layout, place: Callable[[int, int], str]) -> None:
    """Write the transformation of all channels; `place` returns the C text of the address of an element of the image tile."""
    whole = layout.channels // layout.hardware.lanes * layout.hardware.lanes
    for begin, end in ((0, whole), (whole, layout.channels)):
        if begin < end:
            _vectors(lines, layout, (begin, end), place)


def _vectors(lines: Lines, layout: Layout, channels: tuple[int, int], place: Callable[[int, int], str]) -> None:
    """Write the transformation of the channels `channels` (begin, end): whole vectors, or a part of one."""
    (begin, end), lanes = channels, layout.hardware.lanes
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


def step(layout: Layout) -> str:
    """Return the C expression that moves to the next image tile."""
    _, down, across = tiles_of(layout.op)
    return f"across + 1 < {across} ? across++ : (across = 0, down + 1 < {down} ? down++ : (down = 0, picture++))"


assert np.isin(np.concatenate([INPUT, OUTPUT]), (-1, 0, 1)).all()  # as `sum_of` expects
