"""C text of a chain's row nest with a diagonal, such as causal attention: columns after the diagonal are skipped.

A mask is computed from row and column, not read. A block of rows computes the columns that its last row sees, rounded up to whole
steps of the nest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from gensor_gym.chains.chain import Chain
from gensor_gym.codegen.gir.expressions import number
from gensor_gym.codegen.gir.rows import RowPrinter
from gensor_gym.codegen.gir.shapes import Step
from gensor_gym.dataflow.nodes import Triangle
from gensor_gym.gir.igraph import Slice
from gensor_gym.gir.nest import Access


@dataclass
class CausalRows(RowPrinter):
    """Writer of the C function of a row nest that ends each row at column `seen`, an argument of the function."""

    chain: Chain | None = None
    _given: ClassVar[str] = ", const long seen"

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.chain is not None
        made = ((self.nest.cell[name].made, known) for name, known in self.chain.masks.items())
        self.triangles: dict[Access | None, Triangle] = {access: known for access, known in made if isinstance(access, Access)}

    def pointers(self) -> None:
        """Write declarations of pointers to rows, and for each diagonal and row the number of columns up to it."""
        super().pointers()
        assert self.chain is not None
        for diagonal in sorted({one.diagonal for one in self.triangles.values()}):
            for r in self._rows():
                self.lines.add(f"const long up_to_{diagonal}_{r} = (row + {r}) % {self.chain.rows} + {diagonal + 1};")

    def _slices(self) -> Iterable[Slice]:
        return (part for part in super()._slices() if part.access not in self.triangles)

    def _when(self, start: int) -> str:
        return f"if ({start} < seen)" if start else ""

    def _end(self, end: int) -> str:
        return f"least(seen, {end})"

    def _loaded(self, part: Slice, r: int, here: str, step: Step) -> str:
        known = self.triangles.get(part.access)
        if known is None:
            return super()._loaded(part, r, here, step)
        ends = f"{number(known.below)}, {number(known.above)}"
        return f"triangle_{self.shape.vector}(up_to_{known.diagonal}_{r} - ({here}), {ends})"
