"""Ladders: the tile sizes of an axis in ascending order."""

from __future__ import annotations

import math
from functools import lru_cache

from gensor_gym.graph.matrices.choices import least_tile
from gensor_gym.graph.structure import LEVELS
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

LARGEST_TILE = 1 << 20
"""Longest legal tile along one axis. The footprint of a longer tile would exceed every modelled cache and register file."""

COMPACT_STATES = 2000
"""Bound on the number of schedules of a task in space `compact`, and in `medium` without knobs. Resources are not checked for
this number."""


@lru_cache(maxsize=4096)
def divisors(number: int) -> tuple[int, ...]:
    """Divisors of a number in ascending order."""
    return tuple(sorted({d for n in range(1, math.isqrt(number) + 1) if number % n == 0 for d in (n, number // n)}))


@lru_cache(maxsize=4096)
def sizes(extent: int) -> tuple[int, ...]:
    """Tile sizes of an axis: divisors of the extent, powers of two, and multiples of 8 up to 256, capped at the padded extent.

    The padded extent is the extent rounded up: to a power of two if the extent is below 8, else to a multiple of 8.
    """
    padded = 1 << (extent - 1).bit_length() if extent < 8 else -(-extent // 8) * 8
    found = set(divisors(extent))
    found |= {1 << p for p in range(padded.bit_length()) if 1 << p <= padded}
    found |= set(range(8, min(256, padded) + 1, 8))
    return tuple(sorted(n for n in found if n <= LARGEST_TILE))


@lru_cache(maxsize=4096)
def cpu_sizes(extent: int) -> tuple[int, ...]:
    """Tile sizes on a CPU: `sizes`, the heights 6 and 12 of register tiles 4 and 2 vectors wide, and covers of the extent.

    A cover is the extent rounded up to a multiple of n = 6, 12 or 48 (3 vectors of 16), if n is at most half the extent. With
    covers, a task may take a whole axis that n does not divide.
    """
    found = sizes(extent)
    heights = {n for n in (6, 12) if n <= found[-1]}
    covers = {-(-extent // n) * n for n in (6, 12, 48) if 2 * n <= extent}
    return tuple(sorted(n for n in {*found, *heights, *covers} if n <= LARGEST_TILE))


def ladders(op: Operator, space: str, hardware: Hardware) -> list[tuple[int, ...]]:
    """Ladder of every axis of the operator in a space. In `extended` ladders reach at least the tiles of tensor cores."""
    if space in ("compact", "medium"):
        return compact_ladders(op, hardware.kind)
    if hardware.kind == "cpu":
        return [cpu_sizes(n) for n in op.extents]
    least = [least_tile(op, a, hardware) if space == "extended" else 1 for a in range(len(op.axes))]
    return [_up_to(length, sizes(n)) for n, length in zip(op.extents, least, strict=True)]


def _up_to(length: int, ladder: tuple[int, ...]) -> tuple[int, ...]:
    return (*ladder, *(1 << p for p in range(length.bit_length()) if 1 << p > ladder[-1]))


def compact_ladders(op: Operator, kind: str) -> list[tuple[int, ...]]:
    """Coarse ladders with at most COMPACT_STATES combinations over all levels and stages of construction.

    Every ladder starts with the sizes 1, 4, 16, 64, 256 up to the padded extent. While there are too many combinations, the axis
    with the most sizes loses its largest size (for ties the shortest axis, then the last). A ladder of one size fixes the axis.
    Sizes of an axis divide each other, so an outer tile is always a multiple of the inner tile.
    """
    rungs = [[s for s in (1, 4, 16, 64, 256) if s == 1 or s <= sizes(n)[-1]] for n in op.extents]
    levels = LEVELS[kind]
    while _combinations(rungs, levels) > COMPACT_STATES:
        widest = max(range(len(rungs)), key=lambda a: (len(rungs[a]), -op.extents[a], a))
        rungs[widest].pop()
    return [tuple(r) for r in rungs]


def _combinations(rungs: list[list[int]], levels: int) -> int:
    """Number of combinations of all axes' non-decreasing chains, summed over constructions of 1, 2, .. `levels` levels."""
    return sum(math.prod(math.comb(len(r) + opened - 1, opened) for r in rungs) for opened in range(1, levels + 1))
