"""Storage of values outside a lane's registers: in the workspace between kernels, in a block's shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gensor_gym.codegen.c.text import round_up
from gensor_gym.codegen.gir.generate import GirProgram
from gensor_gym.gir.gpu.teams import WARP, BlockShape, block_shape, lies_across
from gensor_gym.gir.igraph import Instruction, KernelGraph
from gensor_gym.gir.nest import Access
from gensor_gym.gir.placement import Level
from gensor_gym.gir.schedule import FIELDS

LINE = 32
"""Elements of a line of 128 bytes, the alignment of every tensor of the workspace."""


@dataclass(frozen=True)
class KernelPlaces:
    """Storage of one kernel of a program."""

    program: GirProgram
    number: int

    @property
    def graph(self) -> KernelGraph:
        """Its instructions."""
        return self.program.lowered.kernels[self.number]

    @cached_property
    def shape(self) -> BlockShape:
        """The shape of its blocks."""
        header = {field.name: self.program.schedule.value(field.name) for field in FIELDS}
        return block_shape(self.program.nest, header, len(self.graph.passes), self.program.hardware)

    @cached_property
    def reductions(self) -> tuple[Instruction, ...]:
        """Its reductions along columns."""
        return tuple(i for i in self.graph.instructions() if i.kind == "reduce")

    @property
    def finishes(self) -> bool:
        """Whether parts of its reductions are joined by a launch of their own."""
        return self.shape.parts > 1 and bool(self.reductions)

    @cached_property
    def turned(self) -> tuple[Access, ...]:
        """Accesses whose tiles go through shared memory."""
        found: dict[Access, None] = {}
        for one in self.graph.instructions():
            for part in (one.target, *(part for _, part in one.sources)):
                if part.wide and part.access and lies_across(part.access, self.program.nest.row_extents):
                    found[part.access] = None
        return tuple(found) if self.shape.rows > 1 else ()

    @cached_property
    def shared(self) -> dict[str | Access, int]:
        """First element in shared memory of every row buffer, transposed access and reduction (by its cell)."""
        return self._shared[0]

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a block."""
        return 4 * self._shared[1]

    @cached_property
    def _shared(self) -> tuple[dict[str | Access, int], int]:
        found: dict[str | Access, int] = {}
        place = 0
        for buffer in self.graph.buffers(Level.SRAM):
            found[buffer.name] = place
            place += self.shape.rows * buffer.elements
        for access in self.turned:
            found[access] = place
            place += self.shape.rows * (self.shape.wide + 1)
        for reduction in self.reductions if self.shape.lanes > WARP else ():
            found[reduction.cell] = place
            place += self.shape.threads // WARP
        return found, place


@dataclass(frozen=True)
class Workspace:
    """Tensors that one launch leaves for a later one, in elements from the workspace's start."""

    kernels: tuple[KernelPlaces, ...]

    @cached_property
    def places(self) -> dict[str, int]:
        """Offset of every tensor between kernels by its name, and of the parts of a kernel's reductions by `parts_name`."""
        return self._places[0]

    @property
    def nbytes(self) -> int:
        """Bytes of the workspace."""
        return 4 * self._places[1]

    @cached_property
    def _places(self) -> tuple[dict[str, int], int]:
        found: dict[str, int] = {}
        place = 0
        program = self.kernels[0].program
        for buffer in program.lowered.spilled:
            found[buffer.name] = place
            place += round_up(buffer.elements, LINE)
        for kernel in self.kernels:
            for reduction in kernel.reductions if kernel.finishes else ():
                found[parts_name(reduction.cell)] = place
                place += round_up(program.nest.rows * kernel.shape.parts, LINE)
        return found, place


def parts_name(cell: str) -> str:
    """Name of the parts of a reduction; no tensor's name has a point."""
    return f"{cell}.parts"
