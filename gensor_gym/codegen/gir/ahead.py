"""Prefetches of passes: lines that a later pass writes, and those that the next step of rows begins with.

A pass that computes leaves the memory idle, and one that only loads or stores waits for it. So the pass before prefetches the
next written lines, for writing, and the second pass the next step's reads. Processors detect long streams themselves, but not
those of short rows that are interleaved.
"""

from __future__ import annotations

from dataclasses import dataclass

from gensor_gym.gir.igraph import KernelGraph, Slice
from gensor_gym.gir.nest import RowNest
from gensor_gym.gir.placement import Level

LINE = 16
"""Elements of a cache line of 64 bytes."""


@dataclass(frozen=True)
class Ahead:
    """A slice that a pass prefetches at its current columns."""

    part: Slice
    elements: int
    """Distance from this step's row; nothing is fetched past a tensor's end."""
    writes: bool

    def statement(self, at: str) -> str:
        """C text; `at` points to this step's elements."""
        if self.writes:
            return f"__builtin_prefetch({at}, 1);"
        return f"__builtin_prefetch((const void *)((uintptr_t)({at}) + {4 * self.elements}));"


def fetched_ahead(nest: RowNest, kernel: KernelGraph, rows: int, streaming: bool) -> list[list[Ahead]]:
    """Prefetches of each pass of a kernel; empty for a kernel of one pass."""
    found: list[list[Ahead]] = [[] for _ in kernel.passes]
    for number, one in enumerate(kernel.passes[1:]):
        written = (i.target for i in one.along if i.kind == "move" and not i.once)
        found[number] += [Ahead(part, 0, True) for part in written if _in_lines(part) and not streaming]
    if len(found) > 1 and len(nest.row_extents) == 1:
        read = dict.fromkeys(i.sources[0][1] for i in kernel.passes[0].along if i.kind == "move")
        for part in read:
            if _in_lines(part) and part.access is not None and part.access.rows[0]:
                found[1].append(Ahead(part, rows * part.access.rows[0], False))
    return found


def _in_lines(part: Slice) -> bool:
    """Whether it is a contiguous row in a tensor."""
    return part.wide and part.buffer.level is Level.DRAM and part.access is not None and part.access.column == 1
