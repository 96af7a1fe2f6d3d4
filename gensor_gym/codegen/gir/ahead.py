"""Prefetches in a row nest's passes over a row: cache lines that the next pass writes or the next rows read.

A pass that computes leaves the memory idle, and a pass that only loads or stores waits for memory. So each pass prefetches the
lines that the next pass writes, and the second pass prefetches the reads of the next rows. Hardware prefetchers detect long
streams, but not streams of short, interleaved rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from gensor_gym.gir.igraph import KernelGraph, Slice
from gensor_gym.gir.nest import RowNest
from gensor_gym.gir.placement import Level

LINE = 16
"""Number of float32 elements in a cache line of 64 bytes."""


@dataclass(frozen=True)
class Ahead:
    """A prefetch in a pass over a row, for the columns of the current step.

    `part` is the slice of a tensor that the next pass writes or the next rows read.
    """

    part: Slice
    nbytes: int
    """Distance in bytes from this step's row to the row that is prefetched."""
    writes: bool

    def statement(self, at: str) -> str:
        """Return the C statement of the prefetch; `at` is C text of the address of this step's elements."""
        if self.writes:
            return f"__builtin_prefetch({at}, 1);"
        return f"__builtin_prefetch((const void *)((uintptr_t)({at}) + {self.nbytes}));"


def fetched_ahead(nest: RowNest, kernel: KernelGraph, rows: int, streaming: bool) -> list[list[Ahead]]:
    """Return the prefetches of each pass of a kernel, as one list per pass; the lists are empty if it has only one pass."""
    found: list[list[Ahead]] = [[] for _ in kernel.passes]
    for number, one in enumerate(kernel.passes[1:]):
        written = (i.target for i in one.along if i.kind == "move" and not i.once)
        found[number] += [Ahead(part, 0, True) for part in written if _in_lines(part) and not streaming]
    if len(found) > 1 and len(nest.row_extents) == 1 and not nest.graph.whole:
        read = dict.fromkeys(i.sources[0][1] for i in kernel.passes[0].along if i.kind == "move")
        for part in read:
            if _in_lines(part) and part.access is not None and part.access.rows[0]:
                found[1].append(Ahead(part, 4 * rows * part.access.rows[0], False))
    return found


def _in_lines(part: Slice) -> bool:
    return part.wide and part.buffer.level is Level.DRAM and part.access is not None and part.access.column == 1
