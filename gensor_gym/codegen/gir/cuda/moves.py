"""CUDA text of loads and stores of a lane's elements: by 16 bytes if aligned, transposed through shared memory, or one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gensor_gym.codegen.cuda.text import Loop, Writer
from gensor_gym.codegen.gir.cuda.elements import element_of
from gensor_gym.codegen.gir.cuda.inputs import TYPES, converted, half_of, joined, kept, type_of
from gensor_gym.codegen.gir.cuda.places import KernelPlaces
from gensor_gym.codegen.gir.cuda.where import Pointers
from gensor_gym.codegen.gir.elements import Element
from gensor_gym.gir.igraph import Slice
from gensor_gym.gir.nest import Access, RowNest
from gensor_gym.gir.placement import Level


@dataclass(frozen=True)
class Tile:
    """The elements of a row that a lane computes in one step.

    `[u][i]` is element i of vector u, in column `column + u * (LANES * VECTOR) + i`.
    """

    places: KernelPlaces
    pointers: Pointers

    @property
    def _nest(self) -> RowNest:
        return self.places.program.nest

    @property
    def _element(self) -> Element:
        return element_of(self._nest)

    @property
    def columns(self) -> int:
        """Number of columns of a row."""
        return self.places.program.nest.columns

    @property
    def overhangs(self) -> bool:
        """Whether the last step extends past the last column."""
        return self.places.shape.wide * self.places.shape.steps != self.columns

    @contextmanager
    def elements(self, out: Writer) -> Iterator[None]:
        """Write a loop over all elements u, i of the tile around the `with` block."""
        with out.nest([Loop("u", "TILE"), Loop("i", "VECTOR")]):
            yield

    @property
    def inside(self) -> str:
        """CUDA condition that element (u, i) is inside the row; empty if all elements are."""
        return f"column + u * (LANES * VECTOR) + i < {self.columns}" if self.overhangs else ""

    def load(self, out: Writer, part: Slice, name: str, at: str) -> None:
        """Write the declaration of `name[TILE][VECTOR]` and its load from a slice of a buffer.

        `at` is the address at which the slice's row begins.
        """
        four_of, nothing = self._four(part)
        if part.buffer.level is Level.REG:
            out.line(f"{self._element.c} (&{name})[TILE][VECTOR] = {at}[step];")
            return
        out.line(f"{self._element.c} {name}[TILE][VECTOR];")
        if part.access in self.places.turned:
            with self.elements(out):
                out.line(f"{name}[u][i] = {self._turned(part.access)}[u * (LANES * VECTOR) + lane * VECTOR + i];")
        elif self._is_wide(part):
            with out.nest([Loop("u", "TILE")]):
                inside = f"column + u * (LANES * VECTOR) < {self.columns}" if self.overhangs else ""
                vector = f"*reinterpret_cast<const {four_of} *>({at} + column + u * (LANES * VECTOR))"
                vector = f"{inside} ? {vector} : {four_of}{{{', '.join([nothing] * 4)}}}" if inside else vector
                out.line(f"const {four_of} four = {vector};")
                fields = (converted(self._nest, part.access, f"four.{field}") for field in "xyzw")
                values = (self.pointers.loaded(part.access, field) for field in fields)
                out.line(" ".join(f"{name}[u][{i}] = {value};" for i, value in enumerate(values)))
        else:
            with self.elements(out):
                element = converted(self._nest, part.access, f"{at}[{self._offset(part)}]")
                element, zero = self.pointers.loaded(part.access, element), self._element.number(0.0)
                out.line(f"{name}[u][i] = {f'{self.inside} ? {element} : {zero}' if self.inside else element};")

    def store(self, out: Writer, part: Slice, name: str, at: str, conditions: list[str]) -> None:
        """Write the store of a tile to a slice of a buffer, guarded by `conditions`; a store to registers is not guarded."""
        streaming = self.places.shape.streaming and not part.buffer.padded and not half_of(self._nest, part.access)
        if part.buffer.level is Level.REG:
            with self.elements(out):
                out.line(f"{at}[step][u][i] = {name}[u][i];")
        elif part.access in self.places.turned:
            with self.elements(out):
                out.line(f"{self._turned(part.access)}[u * (LANES * VECTOR) + lane * VECTOR + i] = {name}[u][i];")
        elif self._is_wide(part):
            with out.nest([Loop("u", "TILE")]):
                inside = [f"column + u * (LANES * VECTOR) < {self.columns}"] if self.overhangs else []
                with out.guarded(conditions + inside):
                    four_of, _ = self._four(part)
                    numbers = (kept(self._nest, part.access, f"{name}[u][{i}]") for i in range(4))
                    four = f"{four_of}{{{', '.join(numbers)}}}"
                    target = f"reinterpret_cast<{four_of} *>({at} + column + u * (LANES * VECTOR))"
                    out.line(f"__stcs({target}, {four});" if streaming else f"*{target} = {four};")
        else:
            with self.elements(out), out.guarded(conditions + ([self.inside] if self.inside else [])):
                target = f"{at} + {self._offset(part)}"
                value = kept(self._nest, part.access, joined(self._nest, part.access, f"*({target})", f"{name}[u][i]"))
                out.line(f"__stcs({target}, {value});" if streaming else f"*({target}) = {value};")

    def turn_in(self, out: Writer, access: Access, at: str) -> None:
        """Write the load of a step's tile (all rows of the block) into shared memory; adjacent threads load adjacent rows."""
        with self._across(out, access, "side_here") as element:
            loaded = converted(self._nest, access, f"{at}[static_cast<long long>(first_column + c) * {access.column}]")
            out.line(f"{element} = {loaded};")

    def turn_out(self, out: Writer, access: Access, at: str, conditions: list[str]) -> None:
        """Write the store of a step's tile (all rows of the block) from shared memory to its tensor, guarded by `conditions`."""
        with self._across(out, access, " && ".join(["side_here", *conditions])) as element:
            target = f"{at} + static_cast<long long>(first_column + c) * {access.column}"
            streaming = self.places.shape.streaming and not half_of(self._nest, access)
            value = kept(self._nest, access, element)
            out.line(f"__stcs({target}, {value});" if streaming else f"*({target}) = {value};")

    @contextmanager
    def _across(self, out: Writer, access: Access, here: str) -> Iterator[str]:
        """Write a loop over the columns that a thread moves in row `threadIdx.x % ROWS`.

        Yield the text of the element in shared memory.
        """
        inside = [f"first_column + c < {self.columns}"] if self.overhangs else []
        out.line("#pragma unroll")
        with (
            out.block("for (int c = threadIdx.x / ROWS; c < WIDE; c += THREADS / ROWS)"),
            out.guarded([here, *inside]),
        ):
            yield f"shared[{self.places.shared[access]} + threadIdx.x % ROWS * (WIDE + 1) + c]"

    def _turned(self, access: Access | None) -> str:
        assert access is not None
        return f"(shared + {self.places.shared[access]} + place * (WIDE + 1))"

    def _is_wide(self, part: Slice) -> bool:
        """Return whether every vector of a slice is four contiguous, aligned floats inside the row or its padding."""
        if self._nest.graph.whole or self.places.shape.vector != 4 or (self.columns % 4 and not part.buffer.padded):
            return False
        access = part.access
        if access is None:
            return True
        if access == self._nest.scattered:
            return False
        steps = (access.offset, *access.rows, access.chosen.step if access.chosen else 0)
        floats = type_of(self._nest, access) == TYPES["float32"] or bool(half_of(self._nest, access))
        return floats and access.column == 1 and all(step % 4 == 0 for step in steps)

    def _four(self, part: Slice) -> tuple[str, str]:
        """Return (CUDA type of four elements of a slice, text of an element that is zero)."""
        return ("ushort4", "0") if half_of(self._nest, part.access) else ("float4", "0.0f")

    def _offset(self, part: Slice) -> str:
        stride = 1 if part.access is None else part.access.column
        here = "column + u * (LANES * VECTOR) + i"
        return here if stride == 1 else f"static_cast<long long>({here}) * {stride}"
