"""Memory of the values between kernels: one block (the arena), in which memory is reused after a value's last use."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gensor_gym.codegen.c.text import round_up
from gensor_gym.codegen.runtime.memory import ALIGNMENT

CHUNK = 32
"""Number of ranges of memory that `_warmth` compares with a value's possible positions at a time."""


@dataclass(frozen=True)
class Life:
    """A value's size in bytes and its lifetime: the index of the step that computes it, and of the last step that reads it."""

    name: str
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Arena:
    """Result of placing values in memory: the offset in bytes of each value by name, and the size of the block in bytes."""

    offsets: Mapping[str, int]
    bytes: int


def rounded(size: int) -> int:
    """Round a size in bytes up to a multiple of `ALIGNMENT`."""
    return round_up(size, ALIGNMENT)


def bound(lives: Sequence[Life]) -> int:
    """Return the largest number of bytes that are in use during one step: a lower bound on the size of an arena."""
    more = np.zeros(2 + max((life.last for life in lives), default=-1), dtype=np.int64)
    for life in lives:
        more[life.first] += rounded(life.bytes)
        more[life.last + 1] -= rounded(life.bytes)
    return int(more.cumsum().max())


def _none(lives: Sequence[Life]) -> Arena:
    offsets, end = {}, 0
    for life in lives:
        offsets[life.name] = end
        end += rounded(life.bytes)
    return Arena(offsets, end)


class _Placed:
    """Values placed in an arena so far, kept as arrays, because an unrolled recurrent network has thousands of values."""

    def __init__(self, lives: Sequence[Life]) -> None:
        self._values = np.zeros((4, len(lives)), dtype=np.int64)
        self._edges = {0}
        self.offsets: dict[str, int] = {}
        self.end = 0

    def put(self, life: Life, offset: int) -> None:
        """Place a value at an offset in bytes."""
        end = offset + rounded(life.bytes)
        self._values[:, len(self.offsets)] = life.first, life.last, offset, end
        self._edges |= {offset, end}
        self.offsets[life.name] = offset
        self.end = max(self.end, end)

    def gaps(self, life: Life) -> np.ndarray:
        """Return the offsets at which a value can be placed without overlap during its lifetime, int64 in ascending order.

        Candidates are 0 and all starts and ends of placed values. The value must not overlap the inputs of the step that computes
        it.
        """
        first, last, offsets, ends = self._values[:, : len(self.offsets)]
        busy = (first <= life.last) & (last >= life.first)
        starts = np.array(sorted(self._edges), dtype=np.int64)
        stops = starts + rounded(life.bytes)
        taken = (stops[:, None] > offsets[busy]) & (starts[:, None] < ends[busy])
        free: np.ndarray = starts[~taken.any(axis=1)]
        return free

    @property
    def arena(self) -> Arena:
        """Return the placement of all values so far as an `Arena`."""
        return Arena(self.offsets, self.end)


def _whole(lives: Sequence[Life]) -> Arena:
    """Place values so that the arena is small: largest values first, or by size times lifetime, whichever needs fewer bytes."""
    by_area = _placed(lives, lambda life: -life.bytes * (life.last - life.first + 1))
    return min(_by_size(lives), by_area, key=lambda made: made.bytes)


def _by_size(lives: Sequence[Life]) -> Arena:
    """Place values by "greedy by size" of Pisarchyk and Lee (arXiv 2001.03288), section 4.3: the largest values first."""
    return _placed(lives, lambda life: -life.bytes)


def _placed(lives: Sequence[Life], order: Callable[[Life], int]) -> Arena:
    placed = _Placed(lives)
    for life in sorted(lives, key=order):
        placed.put(life, int(placed.gaps(life)[0]))
    return placed.arena


def _hot(lives: Sequence[Life]) -> Arena:
    """Place values in memory that was read recently and may still be cached, in the order in which they are computed.

    The arena stays within the size of `_by_size` if possible. A value that does not fit there gets the lowest free offset.
    """
    limit = _by_size(lives).bytes
    placed, read, waiting = _Placed(lives), dict[tuple[int, int], int](), list[tuple[int, int, int]]()
    for life in sorted(lives, key=lambda life: life.first):
        while waiting and waiting[0][0] < life.first:  # the last reader has run
            last, *place = heapq.heappop(waiting)
            read.pop((place[0], place[1]), None)  # so that it comes last in the dict
            read[place[0], place[1]] = last
        gaps = placed.gaps(life)
        inside = gaps[gaps + rounded(life.bytes) <= limit]
        offset = int(inside[np.argmax(_warmth(inside, life, read))] if len(inside) else gaps[0])
        placed.put(life, offset)
        heapq.heappush(waiting, (life.last, offset, offset + rounded(life.bytes)))
    return placed.arena


def _warmth(starts: np.ndarray, life: Life, read: dict[tuple[int, int], int]) -> np.ndarray:
    """Score each start offset for a value: the latest step that read any of its bytes there, plus the fraction that it read.

    `read` maps the memory of a value that is no longer used, (start, end), to the step of its last read, in the order of steps.
    Scores of starts that are not the best may be too low.
    """
    size, warm, recent = rounded(life.bytes), np.zeros(len(starts)), reversed(read.items())
    while some := list(itertools.islice(recent, CHUNK)):
        if warm.max() > some[0][1] + 1:
            break  # all remaining memory was read earlier
        lows, highs, steps = np.array([(*place, step) for place, step in some]).T
        shared = np.minimum(starts[:, None] + size, highs) - np.maximum(starts[:, None], lows)
        warm = np.maximum(warm, np.where(shared > 0, steps + shared / max(1, size), 0.0).max(axis=1))
    return warm


MODES: dict[str, Callable[[Sequence[Life]], Arena]] = {"none": _none, "whole": _whole, "hot": _hot}
"""Name of a mode -> function that places values: without reuse of memory, in a small arena, or in the most recently read memory.
"""
DEFAULTS = {"cpu": "hot", "gpu": "whole"}
"""Kind of hardware (`cpu` or `gpu`) -> default mode. Most arenas fit into a GPU's second-level cache."""


def arena(lives: Sequence[Life], mode: str = "hot") -> Arena:
    """Place values in one block of memory by one of `MODES`. ValueError for an unknown mode."""
    if mode not in MODES:
        raise ValueError(f"arena {mode!r}: expected one of {', '.join(MODES)}")
    return MODES[mode](lives)
