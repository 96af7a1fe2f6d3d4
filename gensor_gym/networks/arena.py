"""Where the values between kernels lie: one block of memory, in which a value's place is used again when it was last read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gensor_gym.codegen.c.text import round_up
from gensor_gym.codegen.runtime.memory import ALIGNMENT


@dataclass(frozen=True)
class Life:
    """A value: bytes, the step that makes it, and the last that reads it."""

    name: str
    bytes: int
    first: int
    last: int

    def meets(self, other: Life) -> bool:
        """Whether both are needed in one step. An output overlaps no input of its own step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Arena:
    """Offsets in bytes by name, and how long the block is."""

    offsets: Mapping[str, int]
    bytes: int


def rounded(size: int) -> int:
    """Bytes that so many take where each value begins at a multiple of `ALIGNMENT`."""
    return round_up(size, ALIGNMENT)


def bound(lives: Sequence[Life]) -> int:
    """Bytes that are needed at once in the step that needs most: no arena is smaller."""
    steps = range(1 + max((life.last for life in lives), default=-1))
    return max((sum(rounded(life.bytes) for life in lives if life.first <= step <= life.last) for step in steps), default=0)


def _none(lives: Sequence[Life]) -> Arena:
    """A place of its own for each."""
    offsets, end = {}, 0
    for life in lives:
        offsets[life.name] = end
        end += rounded(life.bytes)
    return Arena(offsets, end)


def _whole(lives: Sequence[Life]) -> Arena:
    """The largest first, each at the lowest place where nothing lies that is needed at the same time.

    Greedy by size, of Pisarchyk and Lee (arXiv 2001.03288), section 4.3.
    """
    return _placed(sorted(lives, key=lambda life: -life.bytes), lambda gaps: min(gaps))


def _hot(lives: Sequence[Life]) -> Arena:
    """In the order in which they are made, each where memory was read last, which may still lie in a cache; else at the end.

    The place must be of the bytes that `whole` takes, or it is taken as there.
    """
    limit = _whole(lives).bytes
    placed: list[tuple[int, Life]] = []
    for life in sorted(lives, key=lambda life: life.first):
        gaps = _gaps(life, placed)
        inside = [gap for gap in gaps if gap + rounded(life.bytes) <= limit] or [min(gaps)]
        before = sorted((one for one in placed if one[1].last < life.first), key=lambda one: -one[1].last)
        placed.append((min(inside, key=lambda gap: (-_warmth(gap, life, before), gap)), life))
    end = max((offset + rounded(life.bytes) for offset, life in placed), default=0)
    return Arena({life.name: offset for offset, life in placed}, end)


def _warmth(start: int, life: Life, before: Sequence[tuple[int, Life]]) -> float:
    """How recently the bytes from `start` on were read: the last step of what lay there, weighted by bytes.

    `before` are values that nobody needs any more, those read last first.
    """
    end, warm = start + rounded(life.bytes), 0.0
    for offset, other in before:
        if other.last + 1 <= warm:
            break  # all bytes of what is left are colder
        shared = min(end, offset + rounded(other.bytes)) - max(start, offset)
        if shared > 0:
            warm = max(warm, other.last + shared / (end - start))
    return warm


def _placed(order: Sequence[Life], choose: Callable[[list[int]], int]) -> Arena:
    placed: list[tuple[int, Life]] = []
    for life in order:
        placed.append((choose(_gaps(life, placed)), life))
    end = max((offset + rounded(life.bytes) for offset, life in placed), default=0)
    return Arena({life.name: offset for offset, life in placed}, end)


def _gaps(life: Life, placed: Sequence[tuple[int, Life]]) -> list[int]:
    """Beginnings of places that are free while it lives: at the start, behind every value, and where each one began."""
    busy = [(offset, offset + rounded(other.bytes)) for offset, other in placed if life.meets(other)]
    ends = {edge for offset, other in placed for edge in (offset, offset + rounded(other.bytes))}
    size = rounded(life.bytes)
    return [start for start in sorted({0, *ends}) if all(start + size <= low or high <= start for low, high in busy)]


MODES: dict[str, Callable[[Sequence[Life]], Arena]] = {"none": _none, "whole": _whole, "hot": _hot}
"""Ways to place values: none is used again, as small as can be, and what was read last first."""


def arena(lives: Sequence[Life], mode: str = "hot") -> Arena:
    """Places for values; ValueError for a mode that there is not."""
    if mode not in MODES:
        raise ValueError(f"arena {mode!r}: expected one of {', '.join(MODES)}")
    return MODES[mode](lives)
