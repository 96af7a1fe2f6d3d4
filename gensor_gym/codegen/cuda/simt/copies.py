"""Distribution of the copies of an input's tile into shared memory over the threads of a block. `copy.py` writes their text."""

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
"""Distributions that need at most this many rounds of copies more than the fewest possible along a dimension are tried."""
MASK_BITS = 32
"""Most copies of a thread for which one register keeps the conditions, one bit for each copy."""


@dataclass(frozen=True)
class Copies:
    """Distribution of the copies of one input's box (its elements that a block reads in a step) over the threads of a block.

    Each thread makes at most one copy in every round.
    """

    plan: BlockPlan
    index: int

    @property
    def read(self) -> Access:
        """The input whose box is copied to shared memory."""
        return self.plan.op.reads[self.index]

    @property
    def name(self) -> str:
        """The tensor's name, which is the prefix of the C names declared for its copies."""
        return self.read.tensor.name

    @property
    def tile(self) -> SharedTile:
        """The tile in shared memory that the copies fill."""
        return self.plan.shared_tile(self.index)

    @property
    def width(self) -> int:
        """Number of elements of one copy."""
        return self.tile.load_width

    @property
    def kind(self) -> str:
        """C type of the value that one copy moves."""
        scalar = SCALARS[self.read.tensor.dtype]
        return f"{scalar.vector}{self.width}" if self.width > 1 else scalar.name

    @cached_property
    def counts(self) -> list[int]:
        """Number of copies along every dimension of the box. The last dimension runs fastest in a copy's index.

        If a dimension and the previous dimension are contiguous in the tensor and in shared memory and need no guards, they count
        as one, which saves a division.
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
        """Number of copies that all threads make in one round, along every dimension.

        The threads form a smaller box, with the last dimension fastest.
        """
        return fewest_rounds(tuple(self.counts), self.plan.threads)

    @cached_property
    def rounds(self) -> tuple[int, ...]:
        """Number of rounds in which the box is covered, along every dimension."""
        return tuple(-(-count // lanes) for count, lanes in zip(self.counts, self.lanes, strict=True))

    @property
    def trips(self) -> int:
        """Number of copies that each thread makes: the product of `rounds`."""
        return math.prod(self.rounds)

    @cached_property
    def distances(self) -> list[str]:
        """C text of the distance, along every dimension, from a thread's first copy to its copy `trip`.

        It is equal for all threads.
        """
        places = digits("trip" if self.trips > 1 else "0", self.rounds)
        sizes = [*self.lanes[:-1], self.lanes[-1] * self.width]
        return [total([(size, place)]) for size, place in zip(sizes, places, strict=True)]

    @cached_property
    def first(self) -> list[str]:
        """C text of the index in the box at which a thread's first copy begins, along every dimension."""
        places = digits("thread", self.lanes)
        return [*places[:-1], total([(self.width, places[-1])])]

    @property
    def shared_distance(self) -> str | None:
        """C text of the distance in shared memory from a thread's first copy to its copy `trip`; None if it varies by thread."""
        return None if self.tile.swizzle else distance(self.tile.strides, self.distances)

    def in_box(self) -> list[str]:
        """Return the C conditions under which a thread has a copy `trip`: a round may have idle threads or exceed the box."""
        busy = math.prod(self.lanes)
        found = [f"thread < {busy}"] if busy < self.plan.threads else []
        for d, (count, lanes) in enumerate(zip(self.counts, self.lanes, strict=True)):
            if count % lanes:
                size = self.width if d == len(self.counts) - 1 else 1
                found.append(f"{total([(1, f'{self.name}_{d}'), (1, self.distances[d])])} < {count * size}")
        return found

    @property
    def tensor_strides(self) -> tuple[int, ...]:
        """Strides of the tensor, in elements, along every dimension of the tile in shared memory."""
        strides = self.read.axis_strides()
        return tuple(strides[a] for a in self.tile.axes) if self.tile.axes else self.read.strides()

    @property
    def repeated(self) -> bool:
        """Whether a block copies the box in more than one step, so that values that are equal in all steps are worth keeping."""
        return self.plan.steps > self.plan.slices

    @property
    def moving(self) -> list[int]:
        """Dimensions of the tensor whose index changes from step to step."""
        plan = self.plan
        axes = [a for a in plan.op.reduce if plan.program.grid[a] > 1]
        return [d for d, row in enumerate(self.read.coefficients) if any(row[a] for a in axes)]

    def guards(self, places: list[str]) -> tuple[list[str], list[str]]:
        """Return the C conditions under which a copy at index `places` of the box is inside the tensor.

        They are (conditions equal in all steps, other conditions).
        """
        fixed: list[str] = []
        changing: list[str] = []
        for d, index in enumerate(self.positions(places)):
            (changing if d in self.moving else fixed).extend(bounds(self.plan, self.read, d, index))
        return fixed, changing

    def positions(self, places: list[str], moving: bool = True) -> list[str]:
        """Return C text of an element's index in the tensor, for each dimension.

        `places` are C texts of the element's index within the copied box. The offset of the current reduction step is added only
        if `moving`.
        """
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
        """Whether the conditions that are equal in all steps are evaluated before the main loop and kept in one bit per copy."""
        fixed, _ = self.guards(["place"] * len(self.counts))
        lasting = self.repeated and self.trips <= MASK_BITS
        return bool(fixed) and lasting and fill_of(self.plan, self.read) is not None

    @cached_property
    def whole_box(self) -> tuple[list[str], list[str]] | None:
        """C conditions under which the whole box is inside the tensor: (conditions equal in all steps, other conditions).

        The result is None if the box is never inside.
        """
        found = whole(self.plan, self.read)
        if found is None:
            return None
        return [c for d, c in found if d not in self.moving], [c for d, c in found if d in self.moving]

    @property
    def guarded(self) -> bool:
        """Whether some copy may be outside the tensor, so that copies need guards."""
        return any(self.guards(["place"] * len(self.counts)))


def distance(strides: tuple[int, ...], distances: list[str]) -> str:
    """Return the C text of the sum of strides * distances.

    It is a single multiple of `trip` if all distances are multiples of it.
    """
    multiples = [re.fullmatch(r"trip(?: \* (\d+))?", text) for text in distances]
    if all(found or text == "0" for found, text in zip(multiples, distances, strict=True)):
        return total([(sum(s * int(m[1] or 1) for s, m in zip(strides, multiples, strict=True) if m), "trip")])
    return total(zip(strides, distances, strict=True))


def digits(number: str, sizes: tuple[int, ...]) -> list[str]:
    """Return the C text of a number's digits in the mixed radix `sizes`, the last digit fastest.

    No remainder is taken for the first digit, because the number is below the product of all sizes.
    """
    places = ["0"] * len(sizes)
    live = [d for d, size in enumerate(sizes) if size > 1] if number != "0" else []
    for d in live:
        places[d] = remainder(number, math.prod(sizes[d + 1 :]), 0 if d == live[0] else sizes[d])
    return places


@lru_cache(maxsize=4096)
def fewest_rounds(counts: tuple[int, ...], threads: int) -> tuple[int, ...]:
    """Return the box of at most `threads` copies that covers a box of `counts` copies in the fewest rounds.

    Among equals, it is the box that exceeds `counts` along the fewest dimensions, then the box that is longest along the last
    dimensions.
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
