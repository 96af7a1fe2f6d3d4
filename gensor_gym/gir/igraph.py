"""The instruction graph: a schedule as instructions on slices of buffers at levels of memory.

Terms after Unified IR (deathwings602/Unified-IR, the group's later statement of PowerFusion's IR): a buffer is an iPointer, a
slice an iSlice, an instruction an iOp, a kernel a launch, a unit the thread or group that runs it step by step.
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
    """One contiguous piece of memory: a tensor in DRAM, or one row for each row of a step."""

    name: str
    level: Level
    elements: int
    """Total elements in DRAM; otherwise elements of a row, padded to whole vectors."""
    padded: bool = False
    """Whether rows are padded to whole vectors, so that elements past the last may be read and written."""


@dataclass(frozen=True)
class Slice:
    """An instruction's part of a buffer: in each row of the step one element, or a tile along the columns."""

    buffer: Buffer
    wide: bool
    access: Access | None = None
    """Access of a slice in DRAM; others are dense."""

    @property
    def is_held(self) -> bool:
        """Whether it is in registers while a step works on it, and nowhere else."""
        return self.buffer.level is Level.REG and self.buffer.elements == 0


@dataclass(frozen=True)
class Instruction:
    """`kind` is move, map or reduce; the target holds the result of the sources, which have the names of cells."""

    kind: str
    cell: str
    target: Slice
    sources: tuple[tuple[str, Slice], ...]
    body: Expression | Reduction | Online | None = None
    once: tuple[int, ...] = ()
    """Axes of rows along which it would only be repeated: it is done where a row's numbers along them are 0."""


@dataclass(frozen=True)
class Pass:
    """One traversal of the columns of a step's rows, and the instructions once a row after it."""

    along: tuple[Instruction, ...]
    after: tuple[Instruction, ...]


@dataclass(frozen=True)
class KernelGraph:
    """One launch in every step of rows: instructions once a row, then pass after pass."""

    before: tuple[Instruction, ...]
    passes: tuple[Pass, ...]

    def instructions(self) -> Iterator[Instruction]:
        """All instructions in order."""
        yield from self.before
        for one in self.passes:
            yield from one.along
            yield from one.after

    def buffers(self, level: Level) -> tuple[Buffer, ...]:
        """Its buffers at a level, each once, in order of appearance."""
        found: dict[Buffer, None] = {}
        for instruction in self.instructions():
            for part in (instruction.target, *(part for _, part in instruction.sources)):
                if part.buffer.level is level:
                    found[part.buffer] = None
        return tuple(found)
