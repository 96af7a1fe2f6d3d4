"""Plan of a wgmma kernel whose B[k, n] must be transposed first: tf32, and types of 8 bits.

wgmma transposes operands of 16 bits only. So a first kernel of the same program (`cuda/wgmma/transpose.py`) writes B into the
workspace as [n, k], and both operands are in shared memory as rows of k. A step of the reduction is 128 bytes of a row: 32
elements of tf32, or 128 of 8 bits.

Elements of tf32 are float32 in memory. wgmma ignores their lower 13 bits, which would round towards zero. Instead, the copies to
shared memory round them to nearest, because their tensor maps have type tf32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gensor_gym.codegen.cuda.tensor_map import MAX_BOX, TensorMap
from gensor_gym.codegen.cuda.wgmma.plan import ColumnRowsPlan, aligned, check_batch, check_wgmma
from gensor_gym.codegen.program import Program
from gensor_gym.graph.matrices.lying import SWIZZLE_BYTES


@dataclass(frozen=True)
class RowsPlan(ColumnRowsPlan):
    """A product, or a batch of products, with B transposed beforehand: [.., n, k] in the workspace."""

    @property
    def columns(self) -> int:
        """Number of columns of all consumers."""
        return self.tile[1] * self.consumers[1]

    @property
    def box_columns(self) -> int:
        """Number of columns in one copy: the largest divisor of all columns within a box's limit.

        With a cluster, it is the largest such divisor with a number of copies that the blocks can share evenly, if there is one.
        """
        found = [n for n in range(min(MAX_BOX, self.columns), 0, -8) if self.columns % n == 0]
        shared = [n for n in found if self.columns // n % self.cluster == 0]
        return (shared or found)[0]

    @property
    def b_shape(self) -> tuple[int, ...]:
        """Shape of B in the workspace: batch dimensions if there are any, columns n, elements k of a row."""
        *batch, k, n = self.op.reads[self.roles.b].tensor.shape
        return (*batch, n, k)

    @property
    def b_offset(self) -> int:
        """Byte offset of B in the workspace, after the parts of a split reduction."""
        return aligned(super().workspace_bytes)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the workspace: parts of a split reduction, then B."""
        return self.b_offset + math.prod(self.b_shape) * self.item

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        """Tensor maps of A and B; A is read in place, B from the workspace."""
        left = replace(self._map(self.op.reads[self.roles.a], (self.box_rows, self.step)), dtype=self.op.dtype)
        *batch, n, k = self.b_shape
        strides = (n * k * self.item,) * len(batch) + (k * self.item,)
        box = (1,) * len(batch) + (self.box_columns, self.step)
        workspace = len(self.op.inputs) + 1
        return left, TensorMap(workspace, self.op.dtype, self.b_shape, strides, box, SWIZZLE_BYTES, self.b_offset)


def make_rows_plan(program: Program) -> RowsPlan:
    """Plan of a product of tf32 or of 8 bits with tensor_core=2. ValueError names the unsupported part."""
    plan = RowsPlan(program)
    check_wgmma(plan)
    check_batch(plan)
    return plan
