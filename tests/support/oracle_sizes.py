"""Ladders of tile sizes as the design states them, written a second time; see `tests/support/oracle.py`."""

from __future__ import annotations

import itertools
import math


def sizes(extent: int) -> list[int]:
    """Divisors, powers of two, multiples of 8 up to 256; none above the padded extent or 2**20."""
    padded = extent
    while padded % 8 if extent >= 8 else bin(padded).count("1") != 1:
        padded += 1

    def accepted(n: int) -> bool:
        return extent % n == 0 or n & (n - 1) == 0 or (n % 8 == 0 and n <= 256)

    return [n for n in range(1, min(padded, 1 << 20) + 1) if accepted(n)]


def cpu_sizes(extent: int) -> list[int]:
    """Those, 6 and 12 where they are below the largest, and the least multiples of 6, 12 and 48 that cover longer extents."""
    found = set(sizes(extent))
    found |= {n for n in (6, 12) if n < max(found)}
    for n in (6, 12, 48):
        if extent >= 2 * n:
            found.add(next(i for i in range(extent, extent + n) if i % n == 0))
    return sorted(n for n in found if n <= 1 << 20)


def compact(extents: list[int], levels: int) -> list[list[int]]:
    """Coarse ladders: the shortest axis of those with most sizes loses its largest until 2,000 chains are left."""

    def chains(length: int, opened: int) -> int:
        return sum(1 for _ in itertools.combinations_with_replacement(range(length), opened))

    rungs = [[1] + [s for s in (4, 16, 64, 256) if s <= max(sizes(n))] for n in extents]
    while sum(math.prod(chains(len(r), opened) for r in rungs) for opened in range(1, levels + 1)) > 2000:
        most = max(len(r) for r in rungs)
        candidates = [a for a in range(len(extents)) if len(rungs[a]) == most]
        shortest = min(extents[a] for a in candidates)
        rungs[[a for a in candidates if extents[a] == shortest][-1]].pop()
    return rungs
