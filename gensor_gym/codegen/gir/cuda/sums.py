"""CUDA text of reductions over the lanes that share a row: by shuffles in a warp, through shared memory between warps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gensor_gym.codegen.cuda.text import Writer
from gensor_gym.codegen.gir.elements import Element
from gensor_gym.dataflow.nodes import Reduction
from gensor_gym.gir.gpu.teams import WARP
from gensor_gym.gir.igraph import Instruction

ALL = "0xffffffffu"
"""Mask of all lanes of a warp: blocks consist of whole warps, and no lane returns early."""


def reduction_of(one: Instruction) -> Reduction:
    """Return the operation that combines two partial results of a reduction.

    Partial results of an online sum must have the same scale.
    """
    return "max" if one.body == "max" else "sum"


@dataclass(frozen=True)
class Fold:
    """Writer of the reduction of one value per lane over a team of `lanes` lanes (those that share a row).

    Each lane then has the result.
    """

    lanes: int
    element: Element
    names: Mapping[str, str]
    """Name of a reduction's value -> CUDA variable."""
    shared: Mapping[str, str]
    """Name of a reduction's value -> pointer to its numbers in shared memory, one per warp; used by teams of several warps."""

    def write(self, out: Writer, reductions: Sequence[Instruction]) -> None:
        """Write the reduction of several values over the team, with one barrier for all of them."""
        for one in reductions:
            self._shuffles(out, one, min(self.lanes, WARP))
        if self.lanes <= WARP:
            return
        warps = self.lanes // WARP
        with out.block(f"if (threadIdx.x % {WARP} == 0)"):
            for one in reductions:
                out.line(f"{self.shared[one.cell]}[threadIdx.x / {WARP}] = {self.names[one.cell]};")
        out.line("__syncthreads();")
        for one in reductions:
            place = f"threadIdx.x / {self.lanes} * {warps} + threadIdx.x % {warps}"
            out.line(f"{self.names[one.cell]} = {self.shared[one.cell]}[{place}];")
            self._shuffles(out, one, warps)

    def _shuffles(self, out: Writer, one: Instruction, lanes: int) -> None:
        """Write butterfly shuffles, after which all lanes of each group of `lanes` have the same bits."""
        name = self.names[one.cell]
        while lanes > 1:
            lanes //= 2
            other = f"__shfl_xor_sync({ALL}, {name}, {lanes})"
            out.line(f"{name} = {self.element.joined(reduction_of(one), name, other, 1)};")
