"""Packing of int8 and bfloat16 convolutions in groups of channels, which places the channels of a group next to each other."""

from __future__ import annotations

from collections.abc import Sequence

from gensor_gym.codegen.c.amx import blocks
from gensor_gym.codegen.c.group import GROUP
from gensor_gym.codegen.c.layout.operands import Operand
from gensor_gym.codegen.c.micro import pairs
from gensor_gym.codegen.c.micro.dot import UNSIGNED, interleave_text, sums_lines
from gensor_gym.codegen.c.plan import LoopPlan
from gensor_gym.codegen.c.runs import Run, line, loop, panel_count, plus
from gensor_gym.codegen.c.text import Lines, add, linear

_WORD = """/* The bytes p[r * stride] for r < rows, then zeros. */
static inline __attribute__((always_inline)) int32_t word_of(const int8_t *p, long stride, long rows) {
    const uint32_t a = (uint8_t)p[0], b = rows > 1 ? (uint8_t)p[stride] : 0, c = rows > 2 ? (uint8_t)p[2 * stride] : 0;
    return (int32_t)(a | b << 8 | c << 16 | (rows > 3 ? (uint32_t)(uint8_t)p[3 * stride] << 24 : 0));
}

"""
_PIXELS = f"""\
/* Pixels i to end - 1 of a line of four channels, `count` at a time; the last ones begin earlier. No pixels of shorter lines. */
static inline __attribute__((always_inline)) long pack_run(const int8_t *const *channels, long i, long begin, long end,
                                                           unsigned long count, int8_t *packed) {{
    if (end - begin < (long)count) return i;
    for (long at = i; i < end; i += (long)count) {{
        at = least(i, end - (long)count);
        interleave(channels[0] + at, channels[1] + at, channels[2] + at, channels[3] + at, count, -128, packed + {GROUP} * at);
    }}
    return end;
}}

/* A line of pixels: packed[{GROUP} * i + r] = line[r * stride + low + i] and 128 more for i < count; the pad value and 128 more
 * where low + i is not in 0..size-1. Where r is not below rows, filters are zeros, and any number is right. */
static inline void pack_pixels(const int8_t *line, long stride, long rows, long low, long size, int8_t *packed, long count) {{
    const long begin = least(most(-low, 0), count), end = least(most(size - low, begin), count);
    const int8_t *const first = line + low, *const second = rows > 1 ? first + stride : first;
    const int8_t *const third = rows > 2 ? first + 2 * stride : first, *const fourth = rows > 3 ? first + 3 * stride : first;
    const int8_t *const channels[] = {{first, second, third, fourth}};
    for (long i = 0; i < {GROUP} * begin; i++) packed[i] = {{pad}};
    long i = pack_run(channels, begin, begin, end, 16, packed);
    i = pack_run(channels, i, begin, end, 8, packed);
    i = pack_run(channels, i, begin, end, 4, packed);
    for (; i < end; i++)
        for (long r = 0; r < {GROUP}; r++) packed[{GROUP} * i + r] = channels[r][i] ^ -128;
    for (i = {GROUP} * end; i < {GROUP} * count; i++) packed[i] = {{pad}};
}}

"""
_FILTERS = f"""\
/* A panel of `width` filters: the words of taps, `filter` and `channel` apart; zeros for filters and channels not there. */
static inline __attribute__((always_inline)) void pack_filters(const int8_t *source, long filter, long columns, long channel,
                                                               long channels, long taps, int8_t *packed, long width,
                                                               long pitch) {{
    for (long c = 0; c < channels; c += {GROUP}, source += {GROUP} * channel, packed += {GROUP} * pitch)
        for (long lane = 0; lane < width; lane++)
            for (long tap = 0; tap < taps; tap++) {{
                const int8_t *const p = source + lane * filter + tap;
                const int32_t word = lane >= columns ? 0
                                     : c + {GROUP} <= channels ? word_of(p, channel, {GROUP})
                                                               : word_of(p, channel, channels - c);
                memcpy(packed + {GROUP} * (tap * width + lane), &word, sizeof word);
            }}
}}
"""


def helper_text(plan: LoopPlan) -> str:
    """Return the text of C helpers that pack rows of pixels and panels of filters."""
    if not plan.groups_bytes:
        pixels = blocks.PIXELS if _in_blocks(plan) else pairs.INTERLEAVE + pairs.PIXELS
        return ("" if plan.reads_last else pixels) + pairs.FILTERS
    pixels = (blocks.BYTES if _in_blocks(plan) else _PIXELS).replace("{pad}", str(int(plan.op.pad_value) ^ -128))
    return interleave_text() + _WORD + (UNSIGNED if plan.reads_last else pixels) + _FILTERS


def copy_pixels(lines: Lines, plan: LoopPlan, runs: Sequence[Run]) -> None:
    """Write C that packs the image of a convolution, with one call for each row of pixels and group of channels.

    `runs` are the image's dimensions as loops.
    """
    outer, inner = runs[:-1], runs[-1]
    channel = next(n for n, run in enumerate(outer) if run.dimension == plan.group_dimension(plan.reads[0]))
    start, size = line(outer, inner.size)
    target = linear([(run.pitch, f"i{n}") for n, run in enumerate(outer)])
    step = plan.step_of_group
    rows = str(step) if _in_blocks(plan) else _channels_left(outer[channel].rows, f"i{channel}", step)
    with lines.blocks([loop(n, run, step if n == channel else 1) for n, run in enumerate(outer)]):
        source, packed = plus("source", start), plus("packed", target)
        call = f"pack_pixels({source}, {outer[channel].stride}, {rows}, {inner.low}, {size}, {packed}, {inner.rows});"
        lines.add(call)


def copy_filters(lines: Lines, plan: LoopPlan, operand: Operand, runs: Sequence[Run]) -> None:
    """Write C that packs the filters of a convolution into panels of output channels.

    `runs` are the filters' dimensions as loops. An int8 panel is followed by the initial values of its accumulators.
    """
    assert operand.packing is not None
    width, group = plan.tiles[0][plan.vector], plan.group_dimension(operand)
    panel = next(run for run in runs if run.dimension == operand.packing.panel)
    channel = next(run for run in runs if run.dimension == group)
    taps = [run for run in runs if run not in (panel, channel)]
    with lines.block(f"for (long panel = 0; panel < {panel_count(panel, width)}; panel++)"):
        first = add(panel.low, f"panel * {width}")
        columns = f"least({width}, {panel.size} - ({first}))" if panel.checked else str(width)
        place = linear([(panel.stride, first), (channel.stride, channel.low), *((run.stride, run.low) for run in taps)])
        lines.add(f"{operand.c_type} *const panel_at = {plus('packed', linear([(panel.pitch, 'panel')]))};")
        step = plan.step_of_panel
        in_steps = step > plan.group_size and any(run.rows != "1" for run in taps)
        outer = taps if in_steps else taps[:-1]
        blocks = [f"for (long b = 0; b < {channel.rows}; b += {step})"] if in_steps else []
        with lines.blocks([*blocks, *(loop(n, run) for n, run in enumerate(outer))]):
            moves = [(run.stride, f"i{n}") for n, run in enumerate(outer)] + [(channel.stride, "b")] * in_steps
            places = [(run.pitch, f"i{n}") for n, run in enumerate(outer)] + [(channel.pitch, "b")] * in_steps
            source, target = plus("source", add(place, linear(moves))), plus("panel_at", linear(places))
            rows, last, pitch = (step, 1, width) if in_steps else (channel.rows, taps[-1].rows if taps else 1, channel.pitch)
            sizes = f"{panel.stride}, {columns}, {channel.stride}, {rows}, {last}"
            lines.add(f"pack_filters({source}, {sizes}, {target}, {width}, {pitch});")
        if not plan.has_starts:
            return
        heads = [*blocks, f"for (long k = 0; k < {step if in_steps else channel.rows}; k += {GROUP})"]
        heads += [loop(n, run) for n, run in enumerate(taps)]
        at = [(channel.pitch, "b"), (width, "k")] if in_steps else [(channel.pitch, "k")]
        lines.add(*sums_lines(plan, operand, heads, [*at, *((run.pitch, f"i{n}") for n, run in enumerate(taps))]))


def _in_blocks(plan: LoopPlan) -> bool:
    """Return whether packing makes whole rows of tile registers, which the channels of an image fill."""
    return plan.step_of_group > plan.group_size


def _channels_left(rows: str, index: str, group: int) -> str:
    return str(group) if rows.isdigit() and int(rows) % group == 0 else f"{rows} - {index}"
