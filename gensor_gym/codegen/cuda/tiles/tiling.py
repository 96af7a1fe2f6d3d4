"""The tiles of a program on a GPU, and the widths, copies and bounds of its accesses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from gensor_gym.codegen.program import Program
from gensor_gym.graph.structure import has_async_copies, is_aligned, is_staged
from gensor_gym.operators.types import Access, Operator


@dataclass(frozen=True)
class Window:
    """Copies of the rows of a convolution's or pooling's input, in whole vectors.

    They copy `width` elements at a time, from `lead` elements before the first element that is read.
    """

    width: int = 1
    lead: int = 0

    def length(self, box: int) -> int:
        """Return the number of elements of a row in shared memory, for a box of `box` elements along the last dimension."""
        return -(-(box + self.lead) // self.width) * self.width


@dataclass(frozen=True)
class Tiling:
    """A program divided into block tiles and steps. Its A axes and their dimensions are numbered as in the operator."""

    program: Program

    @property
    def op(self) -> Operator:
        """The operator that the program computes."""
        return self.program.operator

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the axes."""
        return tuple(axis.name for axis in self.op.axes)

    @cached_property
    def register(self) -> tuple[int, ...]:
        """Register tile along spatial axes, and number of consecutive reduction points (a chunk) along reduce axes, [A]."""
        return self.program.tiles[0]

    @cached_property
    def block(self) -> tuple[int, ...]:
        """Block tile along spatial axes, and step of the reduction along reduce axes, [A]."""
        return self.program.tiles[1]

    @cached_property
    def inner(self) -> tuple[int, ...]:
        """Number of adjacent elements that a thread computes along every axis: register tile / virtual threads, [A]."""
        return tuple(t // v for t, v in zip(self.register, self.program.vthread, strict=True))

    @property
    def cluster(self) -> int:
        """Number of blocks in a cluster, which run together and share copies."""
        return 1

    @property
    def together(self) -> tuple[int, ...]:
        """Number of adjacent block tiles along every axis that the blocks of a cluster compute together, [A]."""
        return (1,) * len(self.op.axes)

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """Number of block tiles along every axis, where the tiles of a cluster count as one, [A]."""
        return tuple(-(-g // c) for g, c in zip(self.program.grid, self.together, strict=True))

    @cached_property
    def steps(self) -> int:
        """Number of steps of the reduction, over all reduce axes."""
        return math.prod(self.program.grid[a] for a in self.op.reduce)

    @cached_property
    def slices(self) -> int:
        """Number of parts (slices) into which the reduction is split over blocks."""
        return self.program.knob("split_k") if self.op.reduce else 1

    @cached_property
    def staged(self) -> tuple[bool, ...]:
        """Whether each input is copied to shared memory (staged)."""
        return tuple(is_staged(self.op, read) for read in self.op.reads)

    @cached_property
    def stages(self) -> int:
        """Number of buffers in shared memory. While one buffer is read, copies into the other buffers are in flight."""
        return min(self.program.knob("stages"), -(-self.steps // self.slices)) if any(self.staged) else 1

    def sole_mover(self, access: Access, dimension: int) -> int:
        """Return the only axis that the index along a dimension depends on; -1 without such an axis, or if it depends on several.

        An axis of extent 1 whose tile is 1 does not count, because its index is always 0.
        """
        extents = self.op.extents
        row = access.coefficients[dimension]
        moving = [a for a, coefficient in enumerate(row) if coefficient and (extents[a] > 1 or self.block[a] > 1)]
        return moving[0] if len(moving) == 1 else -1

    def global_width(self, access: Access, *lengths: int) -> int:
        """Return the number of elements of the widest aligned access that is always all inside or all outside the tensor.

        It is at most knob `vector`.

        The width must divide `lengths`, such as a thread's number of adjacent elements or the length of a box's row.
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
        """Return the widest aligned copies for an input whose last dimension depends on several axes, as in a convolution.

        Their width is at most knob `vector`.

        Steps and tiles must begin a whole number of copies apart. Rows then begin a little earlier and end a little later than
        the elements read, and every copy is entirely inside or entirely outside the tensor.
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
        """Return whether the GPU can copy an input to shared memory asynchronously.

        The value for elements outside the tensor must be 0.
        """
        outside = [d for d in range(len(read.view)) if any(reach(self, read, d))]
        fills = [self.op.pad_value if is_padded_along(self.op, read, d) else self.op.reduction.identity for d in outside]
        return has_async_copies(self.program.hardware) and not any(fills)


def upper_bound(op: Operator, access: Access, dimension: int) -> int:
    """Return the end (exclusive) of the indices needed along a dimension: the end of the view or of the axes' range."""
    return min(access.view[dimension], access.span(dimension, op.extents)[1] + 1)


def is_padded_along(op: Operator, access: Access, dimension: int) -> bool:
    """Return whether valid axis values lead to indices outside the view along a dimension, as with padding."""
    low, high = access.span(dimension, op.extents)
    return low < 0 or high >= access.view[dimension]


def reach(tiling: Tiling, access: Access, dimension: int) -> tuple[bool, int]:
    """Return whether tiles leave a tensor along a dimension: (whether they have negative indices, upper bound or 0).

    The upper bound is that of the dimension if tiles exceed it, else 0.
    """
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
