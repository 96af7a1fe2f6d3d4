"""Planning of a wgmma kernel of a convolution: an implicit product of weights and pixels, both with contiguous channels.

The tensor memory accelerator copies contiguous rows of channels: of an image [n, h, w, c] and weights [r, s, k, c] in place. An
image [n, c, h, w] and weights [k, c, r, s] have no such rows. So a first kernel of the same program (`cuda/wgmma/layout.py`)
copies them to the workspace in that order. A step of the reduction is 128 bytes of channels at one element (r, s) of the window.
Its operand B is the pixels at this element: a box that is shifted by (r, s), takes every `stride`-th pixel, and has zeros outside
the image as padding. The rows of a box are contiguous in shared memory, so that a wgmma takes the columns of several rows and
images at once.

For a window of one element with a stride, skipped pixels are not copied: the workspace then has [n, p, q, c]. TMA cannot skip
columns of the image itself, because its element strides do not apply to the innermost dimension.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from gensor_gym.codegen.cuda.tensor_map import MAX_BOX, UNIT, TensorMap
from gensor_gym.codegen.cuda.wgmma.plan import ColumnRowsPlan, aligned, check_wgmma, require
from gensor_gym.codegen.program import Program
from gensor_gym.graph.matrices.lying import SWIZZLE_BYTES, moved_reads
from gensor_gym.operators.traits import convolution_places
from gensor_gym.operators.types import Access


@dataclass(frozen=True)
class ConvolutionPlan(ColumnRowsPlan):
    """Plan of a wgmma kernel of a convolution without groups.

    Columns of operand B are output pixels (n, p, q), with q innermost.
    """

    @cached_property
    def column_axes(self) -> tuple[int, ...]:
        """Axes that the columns of the output run over: image, row and column of a pixel."""
        return tuple(a for a in self.op.spatial if a != self.roles.m)

    @cached_property
    def taps(self) -> tuple[int, ...]:
        """Reduce axes of the window: row and column of a window element."""
        return tuple(a for a in self.op.reduce if a != self.roles.k)

    @cached_property
    def moved(self) -> tuple[int, ...]:
        """Indices of the inputs that an earlier kernel (`layout.py`) copies to the workspace."""
        return moved_reads(self.op)

    @property
    def image(self) -> Access:
        """Access to the image, with its dimensions in the order n, c, h, w, which is not always the order in memory."""
        return self._in_order(self.roles.b)

    @property
    def weights(self) -> Access:
        """Access to the weights, with their dimensions in the order k, c, r, s, which is not always the order in memory."""
        return self._in_order(self.roles.a)

    def _in_order(self, read: int) -> Access:
        found, access = convolution_places(self.op), self.op.reads[read]
        assert found is not None, "checked by `is_laid_out`"
        places = found[read]
        rows, offset = (tuple(access.coefficients[place] for place in places), tuple(access.offset[place] for place in places))
        return replace(access, view=tuple(access.view[place] for place in places), coefficients=rows, offset=offset)

    @cached_property
    def pixels(self) -> Access:
        """Access to the pixels that the kernel copies to shared memory.

        They are all pixels of the image or, in the workspace for a window of one element, only those that are read.
        """
        op, image = self.op, self.image
        if self.roles.b not in self.moved or any(op.extents[a] > 1 for a in self.taps) or image.is_padded(op.extents):
            return image
        axes = (self.column_axes[0], self.roles.k, *self.column_axes[1:])
        unit = tuple(tuple(int(a == axis) for a in range(len(op.axes))) for axis in axes)
        return replace(image, view=tuple(op.extents[a] for a in axes), coefficients=unit, offset=(0,) * len(axes))

    @cached_property
    def strides(self) -> tuple[int, int]:
        """Distances in (rows, columns) of the image from one output pixel to the next."""
        _, p, q = self.column_axes
        return self.pixels.coefficients[2][p], self.pixels.coefficients[3][q]

    @cached_property
    def box(self) -> tuple[int, int, int]:
        """(images, rows, columns) of the pixels in one copy: the largest box whose pixels are contiguous in the tile.

        With a cluster, it is preferably the largest such box for which the blocks can share the number of copies evenly.
        """
        images, rows, columns = (self.register[a] for a in self.column_axes)
        found = [(n, rows, columns) for n in range(images, 0, -1) if images % n == 0]
        found += [(1, n, columns) for n in range(rows - 1, 0, -1) if rows % n == 0]
        found += [(1, 1, n) for n in range(columns - 8, 0, -8) if columns % n == 0]
        steps = (1, *self.strides)
        whole = [box for box in found if all(n * step <= MAX_BOX for n, step in zip(box, steps, strict=True))]
        pixels = self.tile[1] * self.consumers[1]
        shared = [box for box in whole if pixels // math.prod(box) % self.cluster == 0]
        return (shared or whole)[0]

    @property
    def channels(self) -> int:
        """Number of channels of a pixel, padded in the workspace to a multiple of 16 bytes."""
        whole = UNIT // self.item
        return -(-self.op.extents[self.roles.k] // whole) * whole

    @property
    def image_offset(self) -> int:
        """Byte offset of the image in the workspace."""
        return aligned(super().workspace_bytes)

    @property
    def weights_offset(self) -> int:
        """Byte offset of the weights in the workspace."""
        n, _, h, w = self.pixels.view
        return aligned(self.image_offset + (n * h * w * self.pitch if self.roles.b in self.moved else 0))

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the workspace: partial sums of a split reduction, and the copies of image and weights."""
        if not self.moved:
            return super().workspace_bytes
        rows = math.prod(self.op.extents[a] for a in (self.roles.m, *self.taps)) if self.roles.a in self.moved else 0
        return self.weights_offset + rows * self.pitch

    @property
    def pitch(self) -> int:
        """Number of bytes from the channels of one pixel to those of the next."""
        return self.channels * self.item

    @property
    def operand_maps(self) -> tuple[TensorMap, ...]:
        """Tensor maps of the weights [r, s, k, c] and the image [n, h, w, c], in the workspace or in place."""
        k, c, r, s = self.weights.view
        argument, offset = self._place(self.roles.a, self.weights_offset)
        left = TensorMap(
            argument, self.op.dtype, (r, s, k, c), (s * k * self.pitch, k * self.pitch, self.pitch),
            (1, 1, self.box_rows, self.step), SWIZZLE_BYTES, offset,
        )  # fmt: skip
        n, c, h, w = self.pixels.view
        argument, offset = self._place(self.roles.b, self.image_offset)
        right = replace(
            left, argument=argument, shape=(n, h, w, c), strides=(h * w * self.pitch, w * self.pitch, self.pitch), offset=offset,
            box=(*self.box, self.step), steps=(1, *self.strides, 1),
        )  # fmt: skip
        return left, right

    def _place(self, read: int, offset: int) -> tuple[int, int]:
        """Return (index of the kernel's argument, byte offset in it) of an operand.

        It is in the workspace if an earlier kernel copies it there, else in its own tensor.
        """
        return (len(self.op.inputs) + 1, offset) if read in self.moved else (read, 0)


def make_convolution_plan(program: Program, alternates: bool = False) -> ConvolutionPlan:
    """Plan the kernel of a conv2d with tensor_core=2 (wgmma). ValueError names the unsupported part."""
    plan = ConvolutionPlan(program, alternates=alternates)
    check_wgmma(plan)
    columns = plan.register[plan.roles.n]
    require(plan, (
        (columns % 8, f"{columns} columns along {plan.names[plan.roles.n]}: multiples of 8"),
        (any(plan.block[a] != 1 for a in plan.taps), f"block tile {plan.block}: one element of the window"),
    ))  # fmt: skip
    return plan
