"""C text that reduces the lanes of vectors to one result per row, if the vector axis is reduced.

Several rows are reduced together.
"""

from __future__ import annotations

import functools

from gensor_gym.codegen.c.operand import SCALAR, Reader
from gensor_gym.codegen.c.plan import LoopPlan
from gensor_gym.codegen.c.text import Lines
from gensor_gym.operators.bodies import REDUCTIONS, Reduction


def _helpers(reduction: Reduction) -> dict[str, str]:
    name, what = reduction.name, "Sums" if reduction.infix else f"The {reduction.word} ones"
    lanes = [f"__builtin_shufflevector({of}, {{{which}}})" for of in ("a, b", "x, x") for which in _LANES[of]]
    pair, half = reduction.joined(lanes[0], lanes[1], "{w}"), reduction.joined(lanes[2], lanes[3], "{half}")
    return {
        f"pair_{name}": f"""/* {what} of neighbouring lanes: those of a, then those of b. */
static inline vec{{w}} pair_{name}_{{w}}(vec{{w}} a, vec{{w}} b) {{
    return {pair};
}}
""",
        f"halve_{name}": f"""/* {what} of neighbouring lanes. */
static inline vec{{half}} halve_{name}_{{w}}(vec{{w}} x) {{
    return {half};
}}
""",
    }


_LANES = {"a, b": ("evens", "odds"), "x, x": ("half_evens", "half_odds")}
HELPERS = {name: text for reduction in REDUCTIONS.values() for name, text in _helpers(reduction).items()}
"""Name of a C helper -> template of its text, as in `c/micro/vectors.py`.

Combining rows in pairs, then pairs of pairs and so on, transposes the rows and adds up their lanes at the same time.
"""


def lane_lists(width: int) -> dict[str, object]:
    """Return, by placeholder in the templates of `HELPERS`, lists of lanes as C text."""
    every, half = range(0, 2 * width, 2), range(0, width, 2)
    return {
        "evens": ", ".join(map(str, every)),
        "odds": ", ".join(str(lane + 1) for lane in every),
        "half_evens": ", ".join(map(str, half)),
        "half_odds": ", ".join(str(lane + 1) for lane in half),
    }


def fold_lanes(lines: Lines, reader: Reader) -> None:
    """Write declarations of `total_r`, one scalar per row r of the register tile.

    Each combines the row's vectors of partial sums and the results of earlier blocks.
    """
    plan = reader.plan
    for first, size in groups(plan):
        if size == 1:
            lines.add(f"{plan.accumulator} total_{first} = {_row_total(plan, first)};")
            continue
        words = []
        for width in _widths(plan):
            word = _pairwise([_partial(plan, r, width) for r in range(first, first + size)], plan.op.reduction, width)
            while width > size:
                word, width = f"halve_{plan.op.reduction.name}_{width}({word})", width // 2
            words.append(word)
        lines.add(f"const vec{size} totals_{first} = {_joined(words, plan.op.reduction, size)};")
        names = [f"total_{first + i} = totals_{first}[{i}]" for i in range(size)]
        lines.add(f"{plan.accumulator} {', '.join(names)};")
    if plan.is_carried:
        for r, row in enumerate(plan.rows):
            before = reader.value(plan.output, row, SCALAR)
            lines.add(f"if (!first) total_{r} = {_joined([f'total_{r}', before], plan.op.reduction, 1)};")


def groups(plan: LoopPlan) -> list[tuple[int, int]]:
    """Divide the rows of the register tile into groups that are reduced together.

    Return (first row, size) of each; the size is a power of two, at most a vector's number of lanes.
    """
    found, first = [], 0
    while first < len(plan.rows):
        size = min(_widths(plan))
        while size > len(plan.rows) - first:
            size //= 2
        found.append((first, size))
        first += size
    return found


def _widths(plan: LoopPlan) -> list[int]:
    return sorted({chunk.width for chunk in plan.chunks}, reverse=True)


def _partial(plan: LoopPlan, row: int, width: int) -> str:
    names = [f"sum_{row}_{c}" for c, chunk in enumerate(plan.chunks) if chunk.width == width]
    return _joined(names, plan.op.reduction, width)


def _row_total(plan: LoopPlan, row: int) -> str:
    words = []
    for width in _widths(plan):
        word = _partial(plan, row, width)
        words.append(word if width == 1 else f"fold_{plan.op.reduction.name}_{width}({word})")
    return _joined(words, plan.op.reduction, 1)


def _pairwise(words: list[str], reduction: Reduction, width: int) -> str:
    while len(words) > 1:
        words = [f"pair_{reduction.name}_{width}({a}, {b})" for a, b in zip(words[::2], words[1::2], strict=True)]
    return words[0]


def _joined(words: list[str], reduction: Reduction, width: int) -> str:
    return functools.reduce(lambda a, b: reduction.joined(a, b, width), words)
