"""CUDA text of indices of a lane's row, and of pointers to its elements, in row nests on GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gensor_gym.codegen.c.text import linear
from gensor_gym.codegen.cuda.text import Writer
from gensor_gym.codegen.gir.cuda.inputs import lost, lost_number, type_of, write_chosen
from gensor_gym.codegen.gir.rows import c_name
from gensor_gym.gir.nest import Access, RowNest

INT = 1 << 31


def index_type(nest: RowNest) -> str:
    """Return the CUDA type of row and column indices.

    It is `int` if all fit, including those of blocks past the end, else `long long`.
    """
    return "long long" if max(nest.rows, nest.columns) + (1 << 20) >= INT else "int"


@dataclass
class Pointers:
    """The pointers to rows of tensors that a kernel accesses: for each access, the name of a variable."""

    nest: RowNest
    names: dict[Access, str]

    @classmethod
    def of(cls, nest: RowNest, accesses: list[Access]) -> Pointers:
        """Make pointers with a distinct name for each access."""
        return cls(nest, {access: f"{c_name(access.tensor)}_at{place}" for place, access in enumerate(accesses)})

    def write(
        self, out: Writer, row: str, written: set[Access], prefix: str = "", only: tuple[Access, ...] | None = None
    ) -> None:
        """Write declarations of the indices of the row along all axes, and of pointers to it.

        `only` restricts the accesses; names begin with `prefix`.
        """
        chosen = [access for access in self.names if only is None or access in only]
        if not chosen:
            return
        digits = self.digits(out, row, prefix)
        for access in chosen:
            const, name = "" if access in written else "const ", f"{prefix}{self.names[access]}"
            if access.chosen is not None:
                write_chosen(out, self.nest, access, name, self.row_of(access.chosen.ids, digits), self.row_of(access, digits))
            else:
                out.line(f"{const}{type_of(self.nest, access)} *const {name} = {self.row_of(access, digits)};")

    @property
    def index(self) -> str:
        """CUDA type of indices."""
        return index_type(self.nest)

    def digits(self, out: Writer, row: str, prefix: str = "") -> list[str]:
        """Write declarations of the indices of row number `row` along all axes of rows; return the names of the variables."""
        extents = self.nest.row_extents
        if len(extents) <= 1:
            return [row] * len(extents)
        found: list[str] = []
        below = 1
        for axis in reversed(range(len(extents))):
            quotient = row if below == 1 else f"{row} / {below}"
            text = f"{quotient} % {extents[axis]}" if axis else quotient
            out.line(f"const {index_type(self.nest)} {prefix}digit{axis} = {text};")
            found.insert(0, f"{prefix}digit{axis}")
            below *= extents[axis]
        return found

    @staticmethod
    def row_of(access: Access, digits: Sequence[str]) -> str:
        """Return the CUDA pointer to the first element of the row with the indices `digits` along the axes of rows."""
        terms = [(stride, f"static_cast<long long>({digit})") for stride, digit in zip(access.rows, digits, strict=True)]
        place = linear(terms, access.offset)
        return c_name(access.tensor) + (f" + {place}" if place != "0" else "")

    def loaded(self, access: Access | None, value: str) -> str:
        """Return the CUDA text of a loaded element.

        It is `value`, or `lost_number` if the id that selected the row is outside the table.
        """
        if access is None or access.chosen is None:
            return value
        return f"({lost(self.names[access])} ? {lost_number(self.nest)} : {value})"

    def once(self, access: Access, prefix: str = "") -> list[str]:
        """Return the CUDA conditions under which a row stores a value that several rows share.

        They are true for the first row along all axes of rows that do not index the access.
        """
        extents = self.nest.row_extents
        repeats = access.chosen is None
        axes = [axis for axis, extent in enumerate(extents) if access.rows[axis] == 0 and extent > 1 and repeats]
        return [f"{prefix}{f'digit{axis}' if len(extents) > 1 else 'row'} == 0" for axis in axes]
