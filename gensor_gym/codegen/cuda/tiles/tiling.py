"""The tiles of a program on a GPU, and the widths, copies and edges that its accesses allow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from gensor_gym.codegen.program import Program
from gensor_gym.graph.structure import has_async_copies, is_aligned, is_staged
from gensor_gym.operators.types import Access, Operator


@dataclass(frozen=True)
class Window:
    """How rows of a staged window are copied: `width` elements at a time, `lead` elements before the first that is read."""

    width: int = 1
    lead: int = 0

    def length(self, box: int) -> int:
        """Elements of a row in shared memory, for a box of `box` elements along the last dimension."""
        return -(-(box + self.lead) // self.width) * self.width


@dataclass(frozen=True)
class Tiling:
    """A program cut into block tiles and steps. Axes and dimensions are numbered as in the operator."""

    program: Program

    @property
    def op(self) -> Operator:
        """The operator."""
        return self.program.operator

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the axes."""
        return tuple(axis.name for axis in self.op.axes)

    @cached_property
    def register(self) -> tuple[int, ...]:
        """Register tile (spatial) and chunk of consecutive reduction points (reduce), [A]."""
        return self.program.tiles[0]

    @cached_property
    def block(self) -> tuple[int, ...]:
        """Block tile (spatial) and step of the reduction (reduce), [A]."""
        return self.program.tiles[1]

    @cached_property
    def inner(self) -> tuple[int, ...]:
        """Neighbouring elements that a thread holds along every axis: register tile / virtual threads, [A]."""
        return tuple(t // v for t, v in zip(self.register, self.program.vthread, strict=True))

    @property
    def cluster(self) -> int:
        """Blocks that run together and share copies."""
        return 1

    @property
    def together(self) -> tuple[int, ...]:
        """Neighbouring block tiles along every axis that a cluster of blocks takes together, [A]."""
        return (1,) * len(self.op.axes)

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """Block tiles along every axis, those of a cluster as one, [A]."""
        return tuple(-(-g // c) for g, c in zip(self.program.grid, self.together, strict=True))

    @cached_property
    def steps(self) -> int:
        """Steps of the reduction, all reduce axes together."""
        return math.prod(self.program.grid[a] for a in self.op.reduce)

    @cached_property
    def slices(self) -> int:
        """Parts that the reduction is split into over blocks."""
        return self.program.knob("split_k") if self.op.reduce else 1

    @cached_property
    def staged(self) -> tuple[bool, ...]:
        """Whether each read goes through shared memory."""
        return tuple(is_staged(self.op, read) for read in self.op.reads)

    @cached_property
    def stages(self) -> int:
        """Buffers of the shared tiles: while one is read, copies into the others are in flight."""
        return min(self.program.knob("stages"), -(-self.steps // self.slices)) if any(self.staged) else 1

    def sole_mover(self, access: Access, dimension: int) -> int:
        """The one axis that a dimension's index depends on; -1 if there is none or more than one.

        An axis of extent 1 whose tile is 1 does not count: it adds nothing.
        """
        extents = self.op.extents
        row = access.coefficients[dimension]
        moving = [a for a, coefficient in enumerate(row) if coefficient and (extents[a] > 1 or self.block[a] > 1)]
        return moving[0] if len(moving) == 1 else -1

    def global_width(self, access: Access, *lengths: int) -> int:
        """Widest aligned access in elements, at most knob `vector`, whose groups lie wholly inside or outside.

        The width must divide `lengths`: the run of neighbours that a thread holds, or the row of a box.
        """
        if self.sole_mover(access, len(access.view) - 1) < 0:
            return 1
        limit = upper_bound(self.op, access, len(access.view) - 1)
        for width in (4, 2):
            fits = all(length % width == 0 for length in (*lengths, limit))
            if width <= self.program.knob("vector") and fits and is_aligned(self.op, access, width):
                return width
        return 1

    def window(self, access: Access) -> Window:
        """Widest aligned copies of a staged box along whose last dimension several axes meet, of at most knob `vector`.

        Steps and tiles must begin whole copies apart; rows are then begun a little earlier and ended a little later, and
        every copy is inside the tensor or outside as a whole.
        """
        if access not in self.op.reads or self.program.knob("tensor_core") or self.program.knob("convolution") == 3:
            return Window()
        last = len(access.view) - 1
        row = access.coefficients[last]
        moving = [a for a, c in enumerate(row) if c and (self.op.extents[a] > 1 or self.block[a] > 1)]
        starts = [row[a] * self.block[a] for a in moving if self.program.grid[a] > 1]
        for width in (4, 2):
            fits = all(n % width == 0 for n in (access.view[last], *starts))
            if len(moving) > 1 and width <= self.program.knob("vector") and fits:
                return Window(width, access.offset[last] % width)
        return Window()

    def copies_by_itself(self, read: Access) -> bool:
        """Whether the GPU can copy a read to shared memory asynchronously: its fill value for elements outside is 0."""
        outside = [d for d in range(len(read.view)) if any(reach(self, read, d))]
        fills = [self.op.pad_value if is_padded_along(self.op, read, d) else self.op.reduction.identity for d in outside]
        return has_async_copies(self.program.hardware) and not any(fills)


def upper_bound(op: Operator, access: Access, dimension: int) -> int:
    """First index along a dimension that is not needed: end of the view or of the axes' range."""
    return min(access.view[dimension], access.span(dimension, op.extents)[1] + 1)


def is_padded_along(op: Operator, access: Access, dimension: int) -> bool:
    """Whether axis values in range index outside the view along this dimension."""
    low, high = access.span(dimension, op.extents)
    return low < 0 or high >= access.view[dimension]


def reach(tiling: Tiling, access: Access, dimension: int) -> tuple[bool, int]:
    """Bounds that some tile can exceed along a dimension: whether it indexes below 0, and the upper limit (0 for none)."""
    row, first = access.coefficients[dimension], access.offset[dimension]
    window = tiling.window(access) if dimension == len(access.view) - 1 else Window()
    if window.width > 1:
        start = first + sum(c * (g - 1) * t for c, g, t in zip(row, tiling.program.grid, tiling.block, strict=True))
        box = 1 + sum(c * (t - 1) for c, t in zip(row, tiling.block, strict=True))
        last, limit = start - window.lead + window.length(box) - 1, access.view[dimension]
    else:
        last = first + sum(c * (g * t - 1) for c, g, t in zip(row, tiling.program.grid, tiling.block, strict=True))
        limit = upper_bound(tiling.op, access, dimension)
    return first < 0, limit if last >= limit else 0
