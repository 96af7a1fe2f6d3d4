"""Planning of a wgmma kernel that reads B in rows of k: tf32, 8-bit types, and any type whose B is [n, k] in memory.

wgmma transposes 16-bit operands only. So, for other types, a first kernel of the same program (`cuda/wgmma/transpose.py`) writes
B[k, n] into the workspace as [n, k]. Both operands are in shared memory as rows of k. A step of the reduction is 128 bytes of a
row: 32 elements of tf32, 64 of 16 bits, or 128 of 8 bits.

Elements of tf32 are float32 in memory. wgmma ignores their lower 13 bits, which would round towards zero. Instead, the copies to
shared memory round them to nearest, because their tensor maps have type tf32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from gensor_gym.codegen.cuda.tensor_map import MAX_BOX, TensorMap
from gensor_gym.codegen.cuda.wgmma.plan import ColumnRowsPlan, aligned, check_batch, check_wgmma
from gensor_gym.codegen.program import Program
from gensor_gym.graph.matrices.lying import SWIZZLE_BYTES, moved_reads


@dataclass(frozen=True)
class RowsPlan(ColumnRowsPlan):
    """Plan of a matrix product, or of a batch of products, that reads B as [.., n, k].

    B has that order in memory, or an earlier kernel transposes it.
    """

    @cached_property
    def is_moved(self) -> bool:
        """Whether an earlier kernel (`transpose.py`) transposes B into the workspace."""
        return self.roles.b in moved_reads(self.op)

    @property
    def columns(self) -> int:
        """Number of columns that all consumers of a block compute."""
        return self.tile[1] * self.consumers[1]

    @property
    def box_columns(self) -> int:
        """Number of columns of B in one copy: the largest divisor of `columns` within a box's limit.

        With a cluster, it is preferably the largest such divisor for which the blocks can share the number of copies evenly.
        """
        found = [n for n in range(min(MAX_BOX, self.columns), 0, -8) if self.columns % n == 0]
        shared = [n for n in found if self.columns // n % self.cluster == 0]
        return (shared or found)[0]

    @property
    def b_shape(self) -> tuple[int, ...]:
        """Shape of B as [.., n, k], after any batch dimensions."""
        *batch, first, last = self.op.reads[self.roles.b].tensor.shape
        return (*batch, last, first) if self.is_moved else (*batch, first, last)

    @property
    def b_offset(self) -> int:
        """Byte offset of B in the workspace, after the partial results of a split reduction."""
        return aligned(super().workspace_bytes)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the workspace: partial results of a split reduction, then B if an earlier kernel transposes it."""
        return self.b_offset + math.prod(self.b_shape) * self.item if self.is_moved else super().workspace_bytes

    @property
    def operand_maps(self) -> tuple[TensorMap, ...]:
        """Tensor maps of A, in place, and of B, in the workspace or in place."""
        left = replace(self._map(self.op.reads[self.roles.a], (self.box_rows, self.step)), dtype=self.op.dtype)
        *batch, n, k = self.b_shape
        strides = (n * k * self.item,) * len(batch) + (k * self.item,)
        box = (1,) * len(batch) + (self.box_columns, self.step)
        argument, offset = (len(self.op.inputs) + 1, self.b_offset) if self.is_moved else (self.roles.b, 0)
        return left, TensorMap(argument, self.op.dtype, self.b_shape, strides, box, SWIZZLE_BYTES, offset)


def make_rows_plan(program: Program, alternates: bool = False) -> RowsPlan:
    """Plan a matrix product with tensor_core=2 (wgmma) that reads B in rows of k. ValueError names the unsupported part."""
    plan = RowsPlan(program, alternates=alternates)
    check_wgmma(plan)
    check_batch(plan)
    return plan
