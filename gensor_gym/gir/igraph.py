"""The instruction graph of a scheduled row nest: instructions on slices of buffers, each buffer at a level of memory.

In Unified IR (deathwings602/Unified-IR, a later version of PowerFusion's IR by the same group), a buffer is called iPointer, a
slice iSlice, an instruction iOp, and a kernel a launch. The thread or group that runs a kernel step by step is a unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gensor_gym.dataflow.expressions import Expression
from gensor_gym.dataflow.nodes import Reduction
from gensor_gym.gir.nest import Access, Online
from gensor_gym.gir.placement import Level


@dataclass(frozen=True)
class Buffer:
    """A contiguous range of memory at one level.

    It is a whole tensor in DRAM, or storage for one row of a value in SRAM or registers.
    """

    name: str
    level: Level
    elements: int
    """Number of elements: of the whole tensor in DRAM, else of one row, padded to whole vectors."""
    padded: bool = False
    """Whether rows are padded to whole vectors, so that elements after the last may be read and written."""


@dataclass(frozen=True)
class Slice:
    """The part of a buffer that one instruction reads or writes in each row: a tile of columns if `wide`, else one element."""

    buffer: Buffer
    wide: bool
    access: Access | None = None
    """Position in the tensor of a slice in DRAM; None for any other slice, whose elements are contiguous."""

    @property
    def is_held(self) -> bool:
        """Whether the slice is a temporary value, which exists only in registers while the kernel works on a tile."""
        return self.buffer.level is Level.REG and self.buffer.elements == 0


@dataclass(frozen=True)
class Instruction:
    """An instruction on slices of buffers that writes the slice `target`.

    Kind `move` copies a slice, `map` computes the expression `body`, and `reduce` combines the columns of a row. `sources` are
    (name of a value, slice that holds it) pairs.
    """

    kind: str
    cell: str
    target: Slice
    sources: tuple[tuple[str, Slice], ...]
    body: Expression | Reduction | Online | None = None
    once: tuple[int, ...] = ()
    """Axes of rows along which the result would only be repeated. The instruction runs only for rows with index 0 along them."""


@dataclass(frozen=True)
class Pass:
    """One traversal of the columns of a few rows.

    The instructions `along` run for every tile of columns, the instructions `after` once per row after the last tile.
    """

    along: tuple[Instruction, ...]
    after: tuple[Instruction, ...]


@dataclass(frozen=True)
class KernelGraph:
    """One kernel of the instruction graph.

    For every step (a few rows) it runs the instructions `before` once per row, then its passes over the columns.
    """

    before: tuple[Instruction, ...]
    passes: tuple[Pass, ...]

    def instructions(self) -> Iterator[Instruction]:
        """Yield all instructions in the order of execution."""
        yield from self.before
        for one in self.passes:
            yield from one.along
            yield from one.after

    def buffers(self, level: Level) -> tuple[Buffer, ...]:
        """Return the distinct buffers at a memory level that the kernel's instructions use, in order of appearance."""
        found: dict[Buffer, None] = {}
        for instruction in self.instructions():
            for part in (instruction.target, *(part for _, part in instruction.sources)):
                if part.buffer.level is level:
                    found[part.buffer] = None
        return tuple(found)
