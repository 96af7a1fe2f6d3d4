"""int8 products in groups of four with lanes along the reduction: a lane adds up the products of four neighbours.

The operand with more rows in the register tile is made unsigned by adding 128 at the load. The excess, 128 times the sum of the
other operand's elements, is accumulated alongside, once for all rows that read these elements, and subtracted before lanes are
folded. Elements past the end of the reduction are zeros of the other operand.
"""

from __future__ import annotations

from gensor_gym.codegen.c.group import BIAS, GROUP, splat
from gensor_gym.codegen.c.operand import Reader, bounds
from gensor_gym.codegen.c.plan import Chunk, LoopPlan, Operand
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
"""Texts as in `c/micro/vectors.py`."""

SCALARS = {name: text.replace("vec{w}", "int32_t").replace("{w}", "1").replace("{0}", "0") for name, text in HELPERS.items()}


def roles(reader: Reader) -> tuple[Operand, Operand]:
    """(the operand that is made unsigned, the other one): the other has fewer rows."""
    other, unsigned = sorted(reversed(reader.plan.reads), key=lambda read: len(reader.distinct(read)))
    return unsigned, other


def start(lines: Lines, reader: Reader) -> None:
    """Declare the sums of 128 times the other operand's elements."""
    _, other = roles(reader)
    for c, chunk in enumerate(reader.plan.chunks):
        names = [f"{_excess(place, c)} = {splat('0', chunk.width)}" for place in range(len(reader.distinct(other)))]
        lines.add(f"vec{chunk.width} {', '.join(names)};")


def finish(lines: Lines, reader: Reader) -> None:
    """Take them off."""
    _, other = roles(reader)
    for r, row in enumerate(reader.plan.rows):
        place = reader.distinct(other).index(reader.key(other, row))
        lines.add(*(f"sum_{r}_{c} -= {_excess(place, c)};" for c in range(len(reader.plan.chunks))))


def tail_table(plan: LoopPlan) -> str:
    """Zeros, then ones: read from `done` elements before the ones, it masks the elements of an earlier step."""
    width = plan.step(plan.vector)
    return f"static const int8_t not_done[{2 * width}] = {{[{width} ... {2 * width - 1}] = -1}};\n"


def reads_back(plan: LoopPlan) -> bool:
    """Whether the last step ends with the reduction and masks finished elements; this needs a whole step before the end."""
    extent, width = plan.op.extents[plan.vector], plan.step(plan.vector)
    return extent > width and extent % width != 0


def step(lines: Lines, reader: Reader, tail: bool) -> None:
    """One register tile's width of the reduction; `tail`: fewer elements are left."""
    plan, (unsigned, other) = reader.plan, roles(reader)
    name, end, width = plan.axes[plan.vector], bounds(plan, plan.vector)[1], plan.step(plan.vector)
    if tail and reads_back(plan):
        lines.add(f"const int8_t *const kept = not_done + ({end} - {name});", f"{name} = {end} - {width};")
    declared: set[str] = set()
    for c, chunk in enumerate(plan.chunks):
        for r, row in enumerate(plan.rows):
            places = [reader.distinct(read).index(reader.key(read, row)) for read in (unsigned, other)]
            a, b = f"{unsigned.name}_{places[0]}_{c}", f"{other.name}_{places[1]}_{c}"
            if b not in declared:
                lines.add(f"const vec{chunk.width} {b} = {_loaded(reader, other, row, chunk, tail, kept=True)};")
                excess = _excess(places[1], c)
                lines.add(f"{excess} = dot_{chunk.width}({excess}, {splat(BIAS, chunk.width)}, {b});")
            if a not in declared:
                lines.add(f"const vec{chunk.width} {a} = {_loaded(reader, unsigned, row, chunk, tail)} ^ {BIAS};")
            declared |= {a, b}
            lines.add(f"sum_{r}_{c} = dot_{chunk.width}(sum_{r}_{c}, {a}, {b});")


def _loaded(reader: Reader, operand: Operand, row: tuple[int, ...], chunk: Chunk, tail: bool, kept: bool = False) -> str:
    """Groups of an operand; `kept`: zeros if a step before this one has been."""
    plan, offset = reader.plan, GROUP * chunk.offset
    address = f"{operand.name} + {reader.index(operand, row, chunk)}"
    if not tail:
        return f"words_{chunk.width}({address})"
    if reads_back(plan):
        mask = f" & words_{chunk.width}(kept + {offset})" if kept else ""
        return f"words_{chunk.width}({address}){mask}"
    left = f"{bounds(plan, plan.vector)[1]} - {plan.axes[plan.vector]}{f' - {offset}' if offset else ''}"
    return f"words_part_{chunk.width}({address}, {left})"


def _excess(place: int, chunk: int) -> str:
    return f"excess_{place}_{chunk}"
