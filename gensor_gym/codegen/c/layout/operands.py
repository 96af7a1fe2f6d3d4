"""Operands of the micro-kernel: tensors with the strides by which it reads them, and with their types in memory."""

from __future__ import annotations

from dataclasses import dataclass

from gensor_gym.operators.types import Access

C_TYPES = {"float32": "float", "int8": "int8_t", "int32": "int32_t", "bfloat16": "uint16_t", "float16": "uint16_t"}
ENDINGS = {"int8": "_narrow", "bfloat16": "_bfloat", "float16": "_half"}
"""Type in memory -> ending of the names of helpers that convert between it and the accumulators' type."""


@dataclass(frozen=True)
class Packing:
    """Layout of a packed operand (a copy of the elements that a task tile reads).

    `panel` is the dimension that is cut into panels as wide as the register tile, or -1 for a box without panels. `shape` holds
    the extents of the copied region. `pitch[d]` is the distance in elements of neighbours along dimension d, or of neighbouring
    panels if d is `panel`. `size` is the number of elements in the buffer. `leaves[d]` says that the region can extend outside
    the view along d, `shared` that one copy of the whole tensor serves all tasks.
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

    `dtype` is the type in memory; partial outputs have the accumulators' type. `strides[a]` is the distance in elements for a
    step of one along axis a. `lane_stride` is the distance of adjacent lanes of a vector, which differs from the stride in
    panels. `guarded` lists dimensions whose index can be outside the view. `tables` lists axes without a constant stride; a
    table holds their offsets.
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
        """Suffix of the names of the C helpers that load and store an element, such as `_bfloat`.

        It is empty if the data type needs no conversion.
        """
        return ENDINGS.get(self.dtype, "")
