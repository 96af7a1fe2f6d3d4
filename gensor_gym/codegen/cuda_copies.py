"""How the threads of a block share the copying of one read's tile into shared memory; the text of it is in cuda_copy."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gensor_gym.codegen.cuda_index import along, bounds, fill_of, origin, whole
from gensor_gym.codegen.cuda_plan import Plan
from gensor_gym.codegen.cuda_shared import SharedTile
from gensor_gym.codegen.cuda_text import SCALARS, remainder, total
from gensor_gym.operators.types import Access

KEPT_COPIES = 16
"""Copies of a thread whose addresses are kept in registers at most."""
MASK_BITS = 32
"""Copies of a thread that one register tells to be inside at most."""


@dataclass(frozen=True)
class Copies:
    """How the threads of a block share the copying of one read's box."""

    plan: Plan
    index: int

    @property
    def read(self) -> Access:
        """What is copied."""
        return self.plan.op.reads[self.index]

    @property
    def name(self) -> str:
        """The tensor's name, which begins all names here."""
        return self.read.tensor.name

    @property
    def tile(self) -> SharedTile:
        """Where it goes."""
        return self.plan.shared_tile(self.index)

    @property
    def width(self) -> int:
        """Elements a copy."""
        return self.tile.load_width

    @property
    def trips(self) -> int:
        """Copies of one thread."""
        return -(-self.tile.loads // self.plan.threads)

    @property
    def kind(self) -> str:
        """C type of what one copy moves."""
        scalar = SCALARS[self.read.tensor.dtype]
        return f"{scalar.vector}{self.width}" if self.width > 1 else scalar.name

    @cached_property
    def counts(self) -> list[int]:
        """Copies along every dimension, by which a copy's number is taken apart, the last dimension fastest.

        A dimension that continues the one before it takes over its length, which spares a division. So it is when the box
        holds its whole length in the tensor, without gap in shared memory, and nothing is guarded.
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
    def _coordinates(self) -> np.ndarray:
        """Where every copy begins in the tile, [copies, D]."""
        places = np.stack(np.unravel_index(np.arange(self.tile.loads), self.counts), axis=1)
        places[:, -1] *= self.width
        return places

    @cached_property
    def distances(self) -> list[str] | None:
        """How far along every dimension copy `trip` of a thread is from its first, as text; None where threads differ."""
        if self.trips == 1:
            return ["0"] * len(self.counts)
        places, threads = self._coordinates, self.plan.threads
        first, steps = places[: threads], places[::threads]
        expected = (steps[:, None, :] + first[None, :, :]).reshape(-1, places.shape[1])[: len(places)]
        if (expected != places).any():
            return None
        texts = split(self, f"(trip * {threads})" if threads > 1 else "trip")
        number = np.arange(len(steps))[:, None]
        linear = (steps == number * steps[1]).all(axis=0)
        return [total([(int(steps[1][d]), "trip")]) if linear[d] else texts[d] for d in range(len(self.counts))]

    @cached_property
    def shared_distance(self) -> str | None:
        """Elements in shared memory from a thread's first copy to copy `trip`, as text; None where threads differ."""
        if self.tile.swizzle:
            return None
        if self.distances is not None:
            return distance(self.tile.strides, self.distances)
        places = self._coordinates @ np.array(self.tile.strides)
        moved = places[self.plan.threads :] - places[: -self.plan.threads]
        return total([(int(moved[0]), "trip")]) if (moved == moved[0]).all() else None

    @property
    def tensor_strides(self) -> tuple[int, ...]:
        """Elements in the tensor between neighbours along every dimension of the tile."""
        strides = self.read.axis_strides()
        return tuple(strides[a] for a in self.tile.axes) if self.tile.axes else self.read.strides()

    @property
    def kept(self) -> bool:
        """Whether addresses of all copies are kept in registers, because the copies are not a constant distance apart."""
        return self.distances is None and self.repeated and self.trips <= KEPT_COPIES

    @property
    def repeated(self) -> bool:
        """Whether a block copies the box more than once, so that it pays to keep what stays the same."""
        return self.plan.steps > self.plan.slices

    @property
    def decoded(self) -> bool:
        """Whether every copy finds its place anew in every step, because there are too many to keep."""
        return self.distances is None and not self.kept

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
        """Index in the view along every dimension; without what changes from step to step unless `moving`."""
        plan, read = self.plan, self.read
        axes = range(len(plan.names))
        origins = [origin(plan, a) if moving or a in plan.op.spatial else "0" for a in axes]
        if self.tile.axes:
            place = dict(zip(self.tile.axes, places, strict=True))
            indices = [total([(1, origins[a]), (1, place.get(a, "0"))]) for a in axes]
            return [along(read, d, indices) for d in range(len(read.view))]
        return [total([(1, along(read, d, origins)), (1, place)]) for d, place in enumerate(places)]

    @cached_property
    def masked(self) -> bool:
        """Whether one bit a copy says that it is inside as far as that does not change from step to step."""
        fixed, _ = self.guards(["place"] * len(self.counts))
        lasting = self.repeated and self.trips <= MASK_BITS
        return bool(fixed) and lasting and fill_of(self.plan, self.read) is not None

    @cached_property
    def whole_box(self) -> tuple[list[str], list[str]] | None:
        """Conditions under which the whole box is inside, fixed and changing; None where it never is."""
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


def split(copies: Copies, load: str) -> list[str]:
    """Coordinates in the box of copy number `load` as C text."""
    counts, places = copies.counts, ["0"] * len(copies.counts)
    live = [d for d, count in enumerate(counts) if count > 1]
    for d in live:
        place = remainder(load, math.prod(counts[d + 1 :]), 0 if d == live[0] else counts[d])
        places[d] = place + (f" * {copies.width}" if d == len(counts) - 1 and copies.width > 1 else "")
    return places
