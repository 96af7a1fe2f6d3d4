"""C text of one step of a row nest's kernel whose vectors run along the rows (`gir.parts`): all columns of some vectors of rows.

A row of the printer is a vector of rows, and a vector of columns is one column.
"""

from __future__ import annotations

from gensor_gym.codegen.gir.inputs import ending
from gensor_gym.codegen.gir.moves import scaled, taken
from gensor_gym.codegen.gir.rows import RowPrinter
from gensor_gym.codegen.gir.shapes import Step
from gensor_gym.dataflow.expressions import Expression
from gensor_gym.gir.igraph import Instruction, Pass, Slice


class AcrossPrinter(RowPrinter):
    """Writer of the C function that computes one step of vectors of rows."""

    def numbers(self, instructions: tuple[Instruction, ...]) -> None:
        """Write instructions on one vector for each vector of rows: loads, computations and stores."""
        width = self.shape.vector
        for one in instructions:
            for r in self._rows():
                name = f"{self.names[one.cell]}_{r}"
                if one.kind == "map":
                    assert isinstance(one.body, Expression)
                    names = {source: f"{self.names[source]}_{r}" for source, _ in one.sources}
                    self.lines.add(f"const vec{width} {name} = {self.element.text(one.body, names, {}, width)};")
                elif one.target.access is not None:
                    when = f"if ({self._first(one, r)}) " if one.once else ""
                    self.lines.add(f"{when}store{self._kind(one.target)}_{width}({self._at(one.target, r)}, {name});")
                else:
                    part = one.sources[0][1]
                    self.lines.add(f"const vec{width} {name} = {self._vector(part, self._at(part, r))};")

    def _vector(self, part: Slice, at: str) -> str:
        assert part.access is not None
        width = self.shape.vector
        is_run = part.access.rows[-1]
        return f"load{self._kind(part)}_{width}({at})" if is_run else f"splat_{width}({taken(self.nest, part, f'({at})')})"

    def _kind(self, part: Slice) -> str:
        return ending(self.nest, part.access)

    def _splat_numbers(self, one: Pass) -> None:
        """Write nothing: values of rows are vectors."""

    def _splat(self, key: str) -> str:
        return f"{self.names[key]}_"

    def _block(self, one: Instruction, step: Step) -> int:
        return 1

    def _loaded(self, part: Slice, r: int, here: str, step: Step) -> str:
        assert part.access is not None
        return self._vector(part, f"{self._at(part, r)} + {scaled(here, part.access.column)}")

    def _stored(self, part: Slice, r: int, here: str, step: Step, name: str) -> str:
        assert part.access is not None
        place = f"{self._at(part, r)} + {scaled(here, part.access.column)}"
        return f"store{self._kind(part)}_{self.shape.vector}({place}, {name});"
