"""Ladders: the tile sizes that an axis may have, in ascending order."""

from __future__ import annotations

import math
from functools import lru_cache

from gensor_gym.graph.matrices.choices import least_tile
from gensor_gym.graph.structure import LEVELS
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

LARGEST_TILE = 1 << 20
"""Longest tile that a program may have along one axis. The footprint of a longer tile would exceed every modelled cache and
register file."""

COMPACT_STATES = 2000
"""Largest number of schedules of a task in space `compact`, and in `medium` without its knobs. The count ignores the limits of
the hardware."""


@lru_cache(maxsize=4096)
def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a number in ascending order."""
    return tuple(sorted({d for n in range(1, math.isqrt(number) + 1) if number % n == 0 for d in (n, number // n)}))


@lru_cache(maxsize=4096)
def sizes(extent: int) -> tuple[int, ...]:
    """Return the tile sizes of an axis: divisors of its extent, powers of two, and multiples of 8 up to 256.

    The largest is the padded extent: the extent rounded up to a power of two if it is below 8, else to a multiple of 8.
    """
    padded = 1 << (extent - 1).bit_length() if extent < 8 else -(-extent // 8) * 8
    found = set(divisors(extent))
    found |= {1 << p for p in range(padded.bit_length()) if 1 << p <= padded}
    found |= set(range(8, min(256, padded) + 1, 8))
    return tuple(sorted(n for n in found if n <= LARGEST_TILE))


@lru_cache(maxsize=4096)
def cpu_sizes(extent: int) -> tuple[int, ...]:
    """Return the tile sizes of an axis on a CPU: `sizes`, 6 and 12, and the extent rounded up to multiples of 6, 12 and 48.

    6 and 12 are the heights of register tiles that are 4 and 2 vectors wide; 48 is 3 vectors of 16. Rounding up to n, if n is at
    most half the extent, lets a task take a whole axis that n does not divide.
    """
    found = sizes(extent)
    heights = {n for n in (6, 12) if n <= found[-1]}
    covers = {-(-extent // n) * n for n in (6, 12, 48) if 2 * n <= extent}
    return tuple(sorted(n for n in {*found, *heights, *covers} if n <= LARGEST_TILE))


def ladders(op: Operator, space: str, hardware: Hardware) -> list[tuple[int, ...]]:
    """Return the tile sizes of every axis of an operator, in ascending order.

    In space `extended` on a GPU they reach at least the tiles of tensor cores, also along shorter axes.
    """
    if space in ("compact", "medium"):
        return compact_ladders(op, hardware.kind)
    if hardware.kind == "cpu":
        return [cpu_sizes(n) for n in op.extents]
    least = [least_tile(op, a, hardware) if space == "extended" else 1 for a in range(len(op.axes))]
    return [_up_to(length, sizes(n)) for n, length in zip(op.extents, least, strict=True)]


def _up_to(length: int, ladder: tuple[int, ...]) -> tuple[int, ...]:
    return (*ladder, *(1 << p for p in range(length.bit_length()) if 1 << p > ladder[-1]))


def compact_ladders(op: Operator, kind: str) -> list[tuple[int, ...]]:
    """Return a few tile sizes for every axis, so that a task has at most `COMPACT_STATES` schedules.

    Every axis starts with the sizes 1, 4, 16, 64, 256 up to the padded extent. While there are too many schedules, the axis with
    the most sizes loses its largest size (for ties the shortest axis, then the last). An axis with one size is fixed. Sizes of an
    axis divide each other, so an outer tile is always a multiple of the inner tile.
    """
    rungs = [[s for s in (1, 4, 16, 64, 256) if s == 1 or s <= sizes(n)[-1]] for n in op.extents]
    levels = LEVELS[kind]
    while _combinations(rungs, levels) > COMPACT_STATES:
        widest = max(range(len(rungs)), key=lambda a: (len(rungs[a]), -op.extents[a], a))
        rungs[widest].pop()
    return [tuple(r) for r in rungs]


def _combinations(rungs: list[list[int]], levels: int) -> int:
    """Count the schedules of axes with the tile sizes `rungs`. Each axis takes one of its sizes for every level.

    No size is smaller than that of the level before. The result is the sum of the schedules with 1, 2, .. and `levels` levels
    begun.
    """
    return sum(math.prod(math.comb(len(r) + opened - 1, opened) for r in rungs) for opened in range(1, levels + 1))
