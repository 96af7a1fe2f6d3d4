"""Lanes of partial sums to one result a row, where the vector axis is reduced: several rows at once."""

from __future__ import annotations

from gensor_gym.codegen.c.operand import SCALAR, Reader
from gensor_gym.codegen.c.plan import LoopPlan
from gensor_gym.codegen.c.text import Lines

HELPERS = {
    "pair_add": """/* Sums of neighbouring lanes: those of a, then those of b. */
static inline vec{w} pair_add_{w}(vec{w} a, vec{w} b) {
    return __builtin_shufflevector(a, b, {evens}) + __builtin_shufflevector(a, b, {odds});
}
""",
    "pair_max": """/* The larger ones of neighbouring lanes: those of a, then those of b. */
static inline vec{w} pair_max_{w}(vec{w} a, vec{w} b) {
    return max_{w}(__builtin_shufflevector(a, b, {evens}), __builtin_shufflevector(a, b, {odds}));
}
""",
    "halve_add": """/* Sums of neighbouring lanes. */
static inline vec{half} halve_add_{w}(vec{w} x) {
    return __builtin_shufflevector(x, x, {half_evens}) + __builtin_shufflevector(x, x, {half_odds});
}
""",
    "halve_max": """/* The larger ones of neighbouring lanes. */
static inline vec{half} halve_max_{w}(vec{w} x) {
    return max_{half}(__builtin_shufflevector(x, x, {half_evens}), __builtin_shufflevector(x, x, {half_odds}));
}
""",
}
"""Texts as in `c/micro/vectors.py`. Joining rows in pairs, then pairs of pairs and so on transposes and adds in one go."""


def lane_lists(width: int) -> dict[str, object]:
    """What stands for the lists of lanes in `HELPERS`."""
    every, half = range(0, 2 * width, 2), range(0, width, 2)
    return {
        "evens": ", ".join(map(str, every)),
        "odds": ", ".join(str(lane + 1) for lane in every),
        "half_evens": ", ".join(map(str, half)),
        "half_odds": ", ".join(str(lane + 1) for lane in half),
    }


def fold_lanes(lines: Lines, reader: Reader) -> None:
    """Declare `total_r`, one scalar a row, from the row's vectors of partial sums and what earlier blocks left."""
    plan = reader.plan
    for first, size in groups(plan):
        if size == 1:
            lines.add(f"{plan.accumulator} total_{first} = {_row(plan, first)};")
            continue
        words = []
        for width in _widths(plan):
            word = _tree([_partial(plan, r, width) for r in range(first, first + size)], _operation(plan), width)
            while width > size:
                word, width = f"halve_{_operation(plan)}_{width}({word})", width // 2
            words.append(word)
        lines.add(f"const vec{size} totals_{first} = {_joined(words, _operation(plan), size)};")
        names = [f"total_{first + i} = totals_{first}[{i}]" for i in range(size)]
        lines.add(f"{plan.accumulator} {', '.join(names)};")
    if plan.is_carried:
        for r, row in enumerate(plan.rows):
            before = reader.value(plan.output, row, SCALAR)
            lines.add(f"if (!first) total_{r} = {_joined([f'total_{r}', before], _operation(plan), 1)};")


def groups(plan: LoopPlan) -> list[tuple[int, int]]:
    """(first row, rows) of the powers of two that the rows are folded in; none larger than a vector has lanes."""
    found, first = [], 0
    while first < len(plan.rows):
        size = min(_widths(plan))
        while size > len(plan.rows) - first:
            size //= 2
        found.append((first, size))
        first += size
    return found


def _operation(plan: LoopPlan) -> str:
    return "max" if plan.op.body == "max" else "add"


def _widths(plan: LoopPlan) -> list[int]:
    """Widths of the chunks, widest first."""
    return sorted({chunk.width for chunk in plan.chunks}, reverse=True)


def _partial(plan: LoopPlan, row: int, width: int) -> str:
    """All chunks of a width of a row, joined lane by lane."""
    names = [f"sum_{row}_{c}" for c, chunk in enumerate(plan.chunks) if chunk.width == width]
    return _joined(names, _operation(plan), width)


def _row(plan: LoopPlan, row: int) -> str:
    """The total of one row."""
    words = []
    for width in _widths(plan):
        word = _partial(plan, row, width)
        words.append(word if width == 1 else f"fold_{_operation(plan)}_{width}({word})")
    return _joined(words, _operation(plan), 1)


def _tree(words: list[str], operation: str, width: int) -> str:
    """Neighbours joined in pairs until one word is left."""
    while len(words) > 1:
        words = [f"pair_{operation}_{width}({a}, {b})" for a, b in zip(words[::2], words[1::2], strict=True)]
    return words[0]


def _joined(words: list[str], operation: str, width: int) -> str:
    """Sum or maximum of expressions."""
    if operation == "add":
        return " + ".join(words)
    text = words[0]
    for word in words[1:]:
        text = f"max_{width}({text}, {word})"
    return text
