"""Operands: tensors as the micro-kernel accesses them, with their types in memory."""

from __future__ import annotations

from dataclasses import dataclass

from gensor_gym.operators.types import Access

C_TYPES = {"float32": "float", "int8": "int8_t", "int32": "int32_t", "bfloat16": "uint16_t", "float16": "uint16_t"}
ENDINGS = {"int8": "_narrow", "bfloat16": "_bfloat", "float16": "_half"}
"""Type in memory -> ending of the names of helpers that convert it to and from the accumulators' type."""


@dataclass(frozen=True)
class Packing:
    """Layout of a packed operand.

    `panel` is the dimension that is cut into panels as wide as the register tile, or -1 for a plain box. `shape` is the
    task tile's box. `pitch[d]` is the distance in elements of neighbours along its dimension d (along `panel`: of whole
    panels). `size` is the buffer's number of elements. `leaves[d]` says that the box can extend outside the view,
    `shared` that one copy of the whole tensor serves all tasks.
    """

    panel: int
    shape: tuple[int, ...]  # [D]
    pitch: tuple[int, ...]  # [D]
    size: int
    leaves: tuple[bool, ...] = ()
    shared: bool = False


@dataclass(frozen=True)
class Operand:
    """A tensor as the micro-kernel accesses it, in place or packed.

    `dtype` is the type in memory; partial outputs have that of the accumulators. `strides[a]` is the distance in elements for a
    step of one along axis a, `lane_stride` the distance of adjacent lanes of a vector (they differ in panels). `guarded` lists
    dimensions whose index can be outside the view. `tables` lists axes without a constant stride, whose offsets are in a table.
    """

    name: str
    access: Access
    dtype: str
    strides: tuple[int, ...]  # [A]
    lane_stride: int
    guarded: tuple[int, ...]
    packing: Packing | None = None
    tables: tuple[int, ...] = ()

    @property
    def c_type(self) -> str:
        """C type of an element in memory."""
        return C_TYPES[self.dtype]

    @property
    def ending(self) -> str:
        """Ending of the names of helpers that load and store its elements; empty if they need no conversion."""
        return ENDINGS.get(self.dtype, "")
