"""Memory of the values between kernels: one block, in which memory is reused after its value's last use."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gensor_gym.codegen.c.text import round_up
from gensor_gym.codegen.runtime.memory import ALIGNMENT

CHUNK = 32
"""Places whose warmth is looked up at a time."""


@dataclass(frozen=True)
class Life:
    """A value: bytes, the step that makes it, and the last that reads it."""

    name: str
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Arena:
    """Offsets in bytes by name, and how long the block is."""

    offsets: Mapping[str, int]
    bytes: int


def rounded(size: int) -> int:
    """Bytes of an allocation of `size` bytes if values begin at multiples of `ALIGNMENT`."""
    return round_up(size, ALIGNMENT)


def bound(lives: Sequence[Life]) -> int:
    """Largest number of live bytes in one step, a lower bound of an arena."""
    more = np.zeros(2 + max((life.last for life in lives), default=-1), dtype=np.int64)
    for life in lives:
        more[life.first] += rounded(life.bytes)
        more[life.last + 1] -= rounded(life.bytes)
    return int(more.cumsum().max())


def _none(lives: Sequence[Life]) -> Arena:
    """A place of its own for each."""
    offsets, end = {}, 0
    for life in lives:
        offsets[life.name] = end
        end += rounded(life.bytes)
    return Arena(offsets, end)


class _Placed:
    """Placed values as arrays: an unrolled recurrence has thousands."""

    def __init__(self, lives: Sequence[Life]) -> None:
        """Room for all of them; nothing is placed yet."""
        self._values = np.zeros((4, len(lives)), dtype=np.int64)
        self._edges = {0}
        self.offsets: dict[str, int] = {}
        self.end = 0

    def put(self, life: Life, offset: int) -> None:
        """Place a value."""
        end = offset + rounded(life.bytes)
        self._values[:, len(self.offsets)] = life.first, life.last, offset, end
        self._edges |= {offset, end}
        self.offsets[life.name] = offset
        self.end = max(self.end, end)

    def gaps(self, life: Life) -> np.ndarray:
        """Offsets, in order, that are free while it lives: 0, and the start or end of any value.

        An output overlaps no input of its own step.
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
        """The arena of the placed values."""
        return Arena(self.offsets, self.end)


def _whole(lives: Sequence[Life]) -> Arena:
    """The largest first, each at the lowest offset without a live value.

    Greedy by size, of Pisarchyk and Lee (arXiv 2001.03288), section 4.3.
    """
    placed = _Placed(lives)
    for life in sorted(lives, key=lambda life: -life.bytes):
        placed.put(life, int(placed.gaps(life)[0]))
    return placed.arena


def _hot(lives: Sequence[Life]) -> Arena:
    """Place values in the order of creation, each where memory was read last and may still be cached; else at the end.

    Only within the bytes that `whole` takes.
    """
    limit = _whole(lives).bytes
    placed, read, waiting = _Placed(lives), dict[tuple[int, int], int](), list[tuple[int, int, int]]()
    for life in sorted(lives, key=lambda life: life.first):
        while waiting and waiting[0][0] < life.first:  # nobody needs it any more
            last, *place = heapq.heappop(waiting)
            read.pop((place[0], place[1]), None)  # so that it comes last
            read[place[0], place[1]] = last
        gaps = placed.gaps(life)
        inside = gaps[gaps + rounded(life.bytes) <= limit]
        offset = int(inside[np.argmax(_warmth(inside, life, read))] if len(inside) else gaps[0])
        placed.put(life, offset)
        heapq.heappush(waiting, (life.last, offset, offset + rounded(life.bytes)))
    return placed.arena


def _warmth(starts: np.ndarray, life: Life, read: dict[tuple[int, int], int]) -> np.ndarray:
    """How recently the bytes from each start on were read: the last step that read the previous value, weighted by bytes.

    `read` maps a dead value's memory (its two ends) to the step of its last read, in the order of steps. The value of dominated
    starts may be too low.
    """
    size, warm, recent = rounded(life.bytes), np.zeros(len(starts)), reversed(read.items())
    while some := list(itertools.islice(recent, CHUNK)):
        if warm.max() > some[0][1] + 1:
            break  # all bytes of what is left are colder
        lows, highs, steps = np.array([(*place, step) for place, step in some]).T
        shared = np.minimum(starts[:, None] + size, highs) - np.maximum(starts[:, None], lows)
        warm = np.maximum(warm, np.where(shared > 0, steps + shared / max(1, size), 0.0).max(axis=1))
    return warm


MODES: dict[str, Callable[[Sequence[Life]], Arena]] = {"none": _none, "whole": _whole, "hot": _hot}
"""Placement of values: without reuse, smallest, and most recently read first."""


def arena(lives: Sequence[Life], mode: str = "hot") -> Arena:
    """An arena for values; ValueError for an unknown mode."""
    if mode not in MODES:
        raise ValueError(f"arena {mode!r}: expected one of {', '.join(MODES)}")
    return MODES[mode](lives)
