"""CUDA text of special inputs of row nests: whole numbers, converted to float when loaded, and tables whose rows ids select."""

from __future__ import annotations

from gensor_gym.codegen.cuda.text import Writer
from gensor_gym.gir.nest import Access, RowNest

TYPES = {"float32": "float", "int32": "int", "int64": "long long", "bool": "unsigned char"}
"""Data type of a graph's input -> type of an element."""
LOST = "__int_as_float(0x7fffffff)"
"""NaN, which is read in place of a row of an id outside the table."""


def type_of(nest: RowNest, access: Access) -> str:
    """Type of the elements that an access reads or writes; float for outputs and buffers."""
    value = nest.graph.values.get(access.tensor)
    return TYPES["float32" if value is None else value.dtype]


def write_chosen(out: Writer, access: Access, name: str, of: str, pointer: str) -> None:
    """Declare the id of a row, which `of` points to, whether it lies outside the table, and the pointer `name` to its row.

    An id outside the table selects row 0, whose values `Pointers.loaded` replaces by NaN.
    """
    assert access.chosen is not None
    out.line(f"const long long {name}_id = *({of});")
    out.line(f"const bool {lost(name)} = {name}_id < 0 || {name}_id >= {access.chosen.count};")
    out.line(f"const float *const {name} = {pointer} + ({lost(name)} ? 0 : {name}_id * {access.chosen.step}ll);")


def lost(name: str) -> str:
    """Variable that says whether the id of the row that the pointer `name` points to lies outside the table."""
    return f"{name}_lost"
