"""How the threads of a block share the copying of one read's tile into shared memory; the text of it is in cuda_copy."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

from gensor_gym.codegen.cuda.index import along, bounds, fill_of, origin, whole
from gensor_gym.codegen.cuda.plan import BlockPlan
from gensor_gym.codegen.cuda.text import SCALARS, remainder, total
from gensor_gym.codegen.cuda.tiles.shared import SharedTile
from gensor_gym.operators.types import Access

MOST_ROUNDS = 64
"""Rounds along a dimension that are tried in addition to the smallest number."""
MASK_BITS = 32
"""Most copies of a thread whose bounds fit in one register's bits."""


@dataclass(frozen=True)
class Copies:
    """How the threads of a block share the copying of one read's box."""

    plan: BlockPlan
    index: int

    @property
    def read(self) -> Access:
        """The copied read."""
        return self.plan.op.reads[self.index]

    @property
    def name(self) -> str:
        """The tensor's name, which begins all names here."""
        return self.read.tensor.name

    @property
    def tile(self) -> SharedTile:
        """The target tile."""
        return self.plan.shared_tile(self.index)

    @property
    def width(self) -> int:
        """Elements a copy."""
        return self.tile.load_width

    @property
    def kind(self) -> str:
        """C type that one copy moves."""
        scalar = SCALARS[self.read.tensor.dtype]
        return f"{scalar.vector}{self.width}" if self.width > 1 else scalar.name

    @cached_property
    def counts(self) -> list[int]:
        """Copies along every dimension, the digits of a copy's number, the last dimension fastest.

        A dimension that continues the one before it takes over its length, which saves a division. That requires that the box
        holds its whole length in the tensor, without gap in shared memory, and without guards.
        """
        read, tile = self.read, self.tile
        counts = list(tile.shape)
        for d in range(1, len(counts) if not tile.axes and not tile.swizzle else 1):
            whole = tile.shape[d] == read.view[d] and tile.strides[d - 1] == tile.strides[d] * tile.shape[d]
            if whole and not bounds(self.plan, read, d, "") + bounds(self.plan, read, d - 1, ""):
                counts[d] *= counts[d - 1]
                counts[d - 1] = 1
        counts[-1] //= self.width
        return counts

    @cached_property
    def lanes(self) -> tuple[int, ...]:
        """Copies of one round along every dimension: threads stand over the box as a smaller box, the last fastest."""
        return fewest_rounds(tuple(self.counts), self.plan.threads)

    @cached_property
    def rounds(self) -> tuple[int, ...]:
        """Rounds along every dimension."""
        return tuple(-(-count // lanes) for count, lanes in zip(self.counts, self.lanes, strict=True))

    @property
    def trips(self) -> int:
        """Copies of one thread."""
        return math.prod(self.rounds)

    @cached_property
    def distances(self) -> list[str]:
        """How far along every dimension copy `trip` of a thread is from its first, as text: the same for all threads."""
        places = digits("trip" if self.trips > 1 else "0", self.rounds)
        sizes = [*self.lanes[:-1], self.lanes[-1] * self.width]
        return [total([(size, place)]) for size, place in zip(sizes, places, strict=True)]

    @cached_property
    def first(self) -> list[str]:
        """Indices in the box of a thread's first copy, as text."""
        places = digits("thread", self.lanes)
        return [*places[:-1], total([(self.width, places[-1])])]

    @property
    def shared_distance(self) -> str | None:
        """Elements in shared memory from a thread's first copy to copy `trip`, as text; None if threads differ."""
        return None if self.tile.swizzle else distance(self.tile.strides, self.distances)

    def in_box(self) -> list[str]:
        """Conditions under which copy `trip` of a thread exists: it has an index in a round, and rounds overhang the box."""
        busy = math.prod(self.lanes)
        found = [f"thread < {busy}"] if busy < self.plan.threads else []
        for d, (count, lanes) in enumerate(zip(self.counts, self.lanes, strict=True)):
            if count % lanes:
                size = self.width if d == len(self.counts) - 1 else 1
                found.append(f"{total([(1, f'{self.name}_{d}'), (1, self.distances[d])])} < {count * size}")
        return found

    @property
    def tensor_strides(self) -> tuple[int, ...]:
        """Elements in the tensor between neighbours along every dimension of the tile."""
        strides = self.read.axis_strides()
        return tuple(strides[a] for a in self.tile.axes) if self.tile.axes else self.read.strides()

    @property
    def repeated(self) -> bool:
        """Whether a block copies the box more than once, so that it pays to keep constant values."""
        return self.plan.steps > self.plan.slices

    @property
    def moving(self) -> list[int]:
        """Dimensions whose index changes from step to step."""
        plan = self.plan
        axes = [a for a in plan.op.reduce if plan.program.grid[a] > 1]
        return [d for d, row in enumerate(self.read.coefficients) if any(row[a] for a in axes)]

    def guards(self, places: list[str]) -> tuple[list[str], list[str]]:
        """Conditions on a copy at `places` in the box: those that no step changes, and the others."""
        fixed: list[str] = []
        changing: list[str] = []
        for d, index in enumerate(self.positions(places)):
            (changing if d in self.moving else fixed).extend(bounds(self.plan, self.read, d, index))
        return fixed, changing

    def positions(self, places: list[str], moving: bool = True) -> list[str]:
        """Index in the view along every dimension; with the part that changes from step to step if `moving`."""
        plan, read = self.plan, self.read
        axes = range(len(plan.names))
        origins = [origin(plan, a) if moving or a in plan.op.spatial else "0" for a in axes]
        if self.tile.axes:
            place = dict(zip(self.tile.axes, places, strict=True))
            indices = [total([(1, origins[a]), (1, place.get(a, "0"))]) for a in axes]
            return [along(read, d, indices) for d in range(len(read.view))]
        leads = [0] * (len(places) - 1) + [-self.tile.lead]
        return [total([(1, along(read, d, origins)), (1, place)], leads[d]) for d, place in enumerate(places)]

    @cached_property
    def masked(self) -> bool:
        """Whether one bit a copy says that it is inside as far as that does not change from step to step."""
        fixed, _ = self.guards(["place"] * len(self.counts))
        lasting = self.repeated and self.trips <= MASK_BITS
        return bool(fixed) and lasting and fill_of(self.plan, self.read) is not None

    @cached_property
    def whole_box(self) -> tuple[list[str], list[str]] | None:
        """Conditions under which the whole box is inside, fixed and changing; None if it never is."""
        found = whole(self.plan, self.read)
        if found is None:
            return None
        return [c for d, c in found if d not in self.moving], [c for d, c in found if d in self.moving]

    @property
    def guarded(self) -> bool:
        """Whether some copy may be outside."""
        return any(self.guards(["place"] * len(self.counts)))


def distance(strides: tuple[int, ...], distances: list[str]) -> str:
    """Distance in elements; of distances that are all multiples of `trip` one multiple of it."""
    multiples = [re.fullmatch(r"trip(?: \* (\d+))?", text) for text in distances]
    if all(found or text == "0" for found, text in zip(multiples, distances, strict=True)):
        return total([(sum(s * int(m[1] or 1) for s, m in zip(strides, multiples, strict=True) if m), "trip")])
    return total(zip(strides, distances, strict=True))


def digits(number: str, sizes: tuple[int, ...]) -> list[str]:
    """Digits of a number with the radices `sizes`, the last one fastest, as text; the first digit is not reduced."""
    places = ["0"] * len(sizes)
    live = [d for d, size in enumerate(sizes) if size > 1] if number != "0" else []
    for d in live:
        places[d] = remainder(number, math.prod(sizes[d + 1 :]), 0 if d == live[0] else sizes[d])
    return places


@lru_cache(maxsize=4096)
def fewest_rounds(counts: tuple[int, ...], threads: int) -> tuple[int, ...]:
    """The box of at most `threads` copies that covers a box of `counts` copies in the fewest rounds.

    Of several with as few: that with the fewest dimensions that it overhangs, then the longest along the last dimensions.
    """
    best: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    stack: list[tuple[tuple[int, ...], int, int]] = [((), 1, 0)]  # lanes from the last dimension on, rounds, overhangs
    while stack:
        lanes, rounds, overhangs = stack.pop()
        rest = math.prod(counts[: len(counts) - len(lanes)])
        if best[0] and rounds * -(-rest // (threads // math.prod(lanes))) > best[0][0]:
            continue
        if len(lanes) == len(counts):
            key = (rounds, overhangs, *(-n for n in lanes))
            best = min(best, (key, lanes[::-1])) if best[0] else (key, lanes[::-1])
            continue
        count, left = counts[len(counts) - 1 - len(lanes)], threads // math.prod(lanes)
        least = -(-count // min(count, left))
        sizes = {1} | {-(-count // n) for n in range(least, min(count, least + MOST_ROUNDS) + 1)}
        stack += [((*lanes, n), rounds * -(-count // n), overhangs + (count % n > 0)) for n in sorted(sizes)]
    return best[1]
