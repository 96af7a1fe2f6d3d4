"""What kernels of both families of tensor cores have: a product of matrices, whose operands are staged."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gensor_gym.codegen.cuda.plan import BlockPlan
from gensor_gym.graph.structure import MatrixAxes, matrix_axes
from gensor_gym.operators.types import ITEM_BYTES


@dataclass(frozen=True)
class ProductPlan(BlockPlan):
    """A program on tensor cores and what follows from it for either instruction."""

    @cached_property
    def roles(self) -> MatrixAxes:
        """Which axes and reads are m, n, k, A and B; ValueError for what is no product of matrices."""
        roles = matrix_axes(self.op)
        if roles is None:
            raise ValueError(f"{self.op} is no product of matrices")
        return roles

    @cached_property
    def item(self) -> int:
        """Bytes of an element of either operand."""
        return ITEM_BYTES[self.op.reads[0].tensor.dtype]

    @cached_property
    def stages(self) -> int:
        """Buffers of shared memory."""
        return self.program.knob("stages")
