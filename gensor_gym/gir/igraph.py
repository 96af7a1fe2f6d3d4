"""The instruction graph: a schedule as instructions on slices of buffers, which are at levels of memory.

In Unified IR (deathwings602/Unified-IR, the group's later statement of PowerFusion's IR), a buffer is called iPointer, a slice
iSlice, an instruction iOp, and a kernel a launch. The thread or group that runs a kernel step by step is a unit.
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
    """A contiguous range of memory: a tensor in DRAM, or storage of one row for each row of a step."""

    name: str
    level: Level
    elements: int
    """Number of elements: of the whole tensor in DRAM, else of one row, padded to whole vectors."""
    padded: bool = False
    """Whether rows are padded to whole vectors, so that elements after the last may be read and written."""


@dataclass(frozen=True)
class Slice:
    """The part of a buffer that an instruction uses for each row of a step: a tile of columns if `wide`, else one element."""

    buffer: Buffer
    wide: bool
    access: Access | None = None
    """Access of a slice in DRAM; None for other slices, which are dense."""

    @property
    def is_held(self) -> bool:
        """Whether the slice exists only in registers, while a step works on it."""
        return self.buffer.level is Level.REG and self.buffer.elements == 0


@dataclass(frozen=True)
class Instruction:
    """An instruction of `kind` move, map or reduce that writes `target`. `sources` are (name of a cell, slice)."""

    kind: str
    cell: str
    target: Slice
    sources: tuple[tuple[str, Slice], ...]
    body: Expression | Reduction | Online | None = None
    once: tuple[int, ...] = ()
    """Axes of rows along which repetitions are redundant: the instruction runs only for rows with index 0 along these axes."""


@dataclass(frozen=True)
class Pass:
    """One traversal of the columns of a step's rows (`along`), and the instructions that run once per row after it."""

    along: tuple[Instruction, ...]
    after: tuple[Instruction, ...]


@dataclass(frozen=True)
class KernelGraph:
    """One kernel. For every step of rows it runs the instructions `before` once per row, then its passes."""

    before: tuple[Instruction, ...]
    passes: tuple[Pass, ...]

    def instructions(self) -> Iterator[Instruction]:
        """All instructions in order."""
        yield from self.before
        for one in self.passes:
            yield from one.along
            yield from one.after

    def buffers(self, level: Level) -> tuple[Buffer, ...]:
        """Distinct buffers at a level, in order of appearance."""
        found: dict[Buffer, None] = {}
        for instruction in self.instructions():
            for part in (instruction.target, *(part for _, part in instruction.sources)):
                if part.buffer.level is level:
                    found[part.buffer] = None
        return tuple(found)
