"""Reductions over the lanes of a row: by shuffles in a warp, through shared memory between warps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gensor_gym.codegen.cuda.text import Writer
from gensor_gym.gir.gpu.teams import WARP
from gensor_gym.gir.igraph import Instruction
from gensor_gym.gir.nest import Online
from gensor_gym.operators.bodies import REDUCTIONS, Reduction

ALL = "0xffffffffu"
"""Lanes of a warp: blocks are whole warps and no lane leaves early."""
_JOINED = {"sum": REDUCTIONS["add"], "max": REDUCTIONS["max"]}


def joining_of(one: Instruction) -> Reduction:
    """The combination of two parts of a reduction; parts of an online sum must have the same scale."""
    return _JOINED["sum" if isinstance(one.body, Online) else str(one.body)]


@dataclass(frozen=True)
class Fold:
    """Combines the values of a team's lanes, so that each lane has the result."""

    lanes: int
    names: Mapping[str, str]
    """Variable of every reduction's cell."""
    shared: Mapping[str, str]
    """Offset in shared memory of every reduction's cell, one number a warp; used by teams of several warps."""

    def write(self, out: Writer, reductions: Sequence[Instruction]) -> None:
        """Reductions that end together: one barrier for all."""
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
        """Exchange halves, so that all lanes of each group of `lanes` end with the same bits."""
        name = self.names[one.cell]
        while lanes > 1:
            lanes //= 2
            other = f"__shfl_xor_sync({ALL}, {name}, {lanes})"
            out.line(f"{name} = {joining_of(one).joined(name, other, 1)};")
