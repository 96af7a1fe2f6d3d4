"""Products in groups with lanes along the reduction: each lane adds up products of adjacent elements.

For int8, the operand with more distinct rows in the register tile is made unsigned: 128 is added when it is loaded. The excess,
128 times the sum of the other operand's elements, is accumulated too, once for all rows that read these elements. It is
subtracted before lanes are added up. Past the end of the reduction, elements of the other operand become zeros; for bfloat16,
elements of both operands.
"""

from __future__ import annotations

from gensor_gym.codegen.c.group import BIAS, splat
from gensor_gym.codegen.c.layout.operands import Operand
from gensor_gym.codegen.c.operand import Reader, bounds
from gensor_gym.codegen.c.plan import Chunk, LoopPlan
from gensor_gym.codegen.c.text import Lines

HELPERS = {
    "words": """/* {w} groups of four bytes, wherever they begin. */
static inline vec{w} words_{w}(const int8_t *p) {
    vec{w} x;
    memcpy(&x, p, sizeof x);
    return x;
}
""",
    "words_part": """/* Those of the first `count` bytes, then zeros. */
static inline vec{w} words_part_{w}(const int8_t *p, long count) {
    vec{w} x = {0};
    memcpy(&x, p, (unsigned long)least(most(count, 0), sizeof x));
    return x;
}
""",
}
"""Name of a C helper -> template of its text, as in `c/micro/vectors.py`."""

SCALARS = {name: text.replace("vec{w}", "int32_t").replace("{w}", "1").replace("{0}", "0") for name, text in HELPERS.items()}


def roles(reader: Reader) -> tuple[Operand, Operand]:
    """Return (operand that is made unsigned, other operand) of an int8 product.

    The other operand has at most as many distinct rows in the register tile.
    """
    other, unsigned = sorted(reversed(reader.plan.reads), key=lambda read: len(reader.distinct(read)))
    return unsigned, other


def start(lines: Lines, reader: Reader) -> None:
    """Write the declaration of the accumulators of the excess, which is 128 times the sum of the other operand's elements.

    The excess arises because 128 is added to one operand to make it unsigned.
    """
    _, other = roles(reader)
    for c, chunk in enumerate(reader.plan.chunks):
        names = [f"{_excess(place, c)} = {splat('0', chunk.width)}" for place in range(len(reader.distinct(other)))]
        lines.add(f"vec{chunk.width} {', '.join(names)};")


def finish(lines: Lines, reader: Reader) -> None:
    """Write C that subtracts the excess (128 times the sum of the other operand's elements) from the accumulators."""
    _, other = roles(reader)
    for r, row in enumerate(reader.plan.rows):
        place = reader.distinct(other).index(reader.key(other, row))
        lines.add(*(f"sum_{r}_{c} -= {_excess(place, c)};" for c in range(len(reader.plan.chunks))))


def tail_table(plan: LoopPlan) -> str:
    """Return the C definition of the array `not_done`: zeros, then elements with all bits 1.

    A window of this array masks the elements that an earlier step has already summed.
    """
    width, item, ones = plan.step(plan.vector), plan.reads[0].c_type, "-1" if plan.groups_bytes else "0xffff"
    return f"static const {item} not_done[{2 * width}] = {{[{width} ... {2 * width - 1}] = {ones}}};\n"


def reads_back(plan: LoopPlan) -> bool:
    """Return whether the last step along the reduction begins earlier, to end with the axis, and masks elements already summed.

    It does if the extent is more than one step and not a multiple of a step.
    """
    extent, width = plan.op.extents[plan.vector], plan.step(plan.vector)
    return extent > width and extent % width != 0


def step(lines: Lines, reader: Reader, tail: bool) -> None:
    """Write the C of one loop iteration, which multiplies and adds as many elements as the register tile is wide.

    `tail` means that it is the last one, with fewer elements.
    """
    plan, (unsigned, other) = reader.plan, roles(reader)
    item, kind, ending = ("int8_t", "vec", "") if plan.groups_bytes else ("uint16_t", "pairs", "_bfloat")
    name, end, width = plan.axes[plan.vector], bounds(plan, plan.vector)[1], plan.step(plan.vector)
    if tail and reads_back(plan):
        lines.add(f"const {item} *const kept = not_done + ({end} - {name});", f"{name} = {end} - {width};")
    declared: set[str] = set()
    for c, chunk in enumerate(plan.chunks):
        for r, row in enumerate(plan.rows):
            places = [reader.distinct(read).index(reader.key(read, row)) for read in (unsigned, other)]
            a, b = f"{unsigned.name}_{places[0]}_{c}", f"{other.name}_{places[1]}_{c}"
            if b not in declared:
                lines.add(f"const {kind}{chunk.width} {b} = {_loaded(reader, other, row, chunk, tail, kept=True)};")
            if b not in declared and plan.groups_bytes:
                excess = _excess(places[1], c)
                lines.add(f"{excess} = dot_{chunk.width}({excess}, {splat(BIAS, chunk.width)}, {b});")
            if a not in declared:
                loaded = _loaded(reader, unsigned, row, chunk, tail, kept=not plan.groups_bytes)
                lines.add(f"const {kind}{chunk.width} {a} = {loaded}{f' ^ {BIAS}' if plan.groups_bytes else ''};")
            declared |= {a, b}
            lines.add(f"sum_{r}_{c} = dot{ending}_{chunk.width}(sum_{r}_{c}, {a}, {b});")


def _loaded(reader: Reader, operand: Operand, row: tuple[int, ...], chunk: Chunk, tail: bool, kept: bool = False) -> str:
    """Return the C text that loads groups of an operand's elements for one row and one vector.

    If `kept`, elements that an earlier step has summed become zeros.
    """
    plan, words = reader.plan, "words" if reader.plan.groups_bytes else "words_bfloat"
    offset = plan.group_size * chunk.offset
    address = f"{operand.name} + {reader.index(operand, row, chunk)}"
    if not tail:
        return f"{words}_{chunk.width}({address})"
    if reads_back(plan):
        mask = f" & {words}_{chunk.width}(kept + {offset})" if kept else ""
        return f"{words}_{chunk.width}({address}){mask}"
    left = f"{bounds(plan, plan.vector)[1]} - {plan.axes[plan.vector]}{f' - {offset}' if offset else ''}"
    part = "words_part" if plan.groups_bytes else "words_part_bfloat"
    return f"{part}_{chunk.width}({address}, {left})"


def _excess(place: int, chunk: int) -> str:
    return f"excess_{place}_{chunk}"
