"""Layouts of memory for a row nest's kernels on a GPU: the workspace for values between launches, and a block's shared memory."""

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
"""Number of float32 elements in 128 bytes; every tensor in the workspace begins at a multiple of this number."""


SCATTERING = 4
"""Most blocks of a scatter for each multiprocessor."""


@dataclass(frozen=True)
class KernelPlaces:
    """The shape of the blocks and the layout of shared memory, for one kernel of a row nest's program."""

    program: GirProgram
    number: int

    @property
    def graph(self) -> KernelGraph:
        """The kernel's instructions."""
        return self.program.lowered.kernels[self.number]

    @cached_property
    def shape(self) -> BlockShape:
        """The shape of the kernel's blocks."""
        header = {field.name: self.program.schedule.value(field.name) for field in FIELDS}
        return block_shape(self.program.nest, header, len(self.graph.passes), self.program.hardware)

    @property
    def blocks(self) -> int:
        """Number of blocks; for a scatter at most a few on each multiprocessor, because each passes over all ids."""
        parts, most = self.shape.parts, SCATTERING * self.program.hardware.units
        return self.shape.blocks if self.program.nest.scattered is None else min(self.shape.blocks, parts * -(-most // parts))

    @cached_property
    def reductions(self) -> tuple[Instruction, ...]:
        """The kernel's reductions along columns."""
        return tuple(i for i in self.graph.instructions() if i.kind == "reduce")

    @property
    def finishes(self) -> bool:
        """Whether several blocks share a row, so that a second launch joins the parts of the reductions."""
        return self.shape.parts > 1 and bool(self.reductions)

    @cached_property
    def turned(self) -> tuple[Access, ...]:
        """Accesses to tensors that are contiguous across rows, so that their tiles are transposed through shared memory."""
        found: dict[Access, None] = {}
        for one in self.graph.instructions():
            for part in (one.target, *(part for _, part in one.sources)):
                if part.wide and part.access and lies_across(part.access, self.program.nest.row_extents):
                    found[part.access] = None
        return tuple(found) if self.shape.rows > 1 and self.program.nest.scattered is None else ()

    @cached_property
    def shared(self) -> dict[str | Access, int]:
        """Offset in shared memory, in elements, of every row buffer (by name), transposed access and reduction (by value)."""
        return self._shared[0]

    @property
    def shared_bytes(self) -> int:
        """Size of a block's shared memory in bytes."""
        return self.program.nest.item_bytes * self._shared[1]

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
    """Layout of the workspace: tensors that one launch of a row nest's program writes and a later launch reads."""

    kernels: tuple[KernelPlaces, ...]

    @cached_property
    def places(self) -> dict[str, int]:
        """Offset in elements of each tensor that one launch writes for a later one, by name.

        Partial results of a reduction are a tensor with the name `parts_name`.
        """
        return self._places[0]

    @property
    def nbytes(self) -> int:
        """Size of the workspace in bytes."""
        return self.kernels[0].program.nest.item_bytes * self._places[1]

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
    """Return the name of the tensor with a reduction's partial results.

    Names of other tensors contain no dot.
    """
    return f"{cell}.parts"
