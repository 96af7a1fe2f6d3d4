"""CUDA text that converts elements of tensors to and from the numbers of a row nest, and that selects rows of tables by ids."""

from __future__ import annotations

from gensor_gym.codegen.cuda.text import Writer
from gensor_gym.codegen.gir.cuda.elements import WHOLE, element_of
from gensor_gym.dataflow.nodes import HALVES
from gensor_gym.gir.nest import Access, RowNest

TYPES = {
    "float32": "float", **dict.fromkeys(HALVES, "unsigned short"), "int32": "int", "int64": "long long", "bool": "unsigned char",
}  # fmt: skip
"""Data type of a graph's value in memory -> CUDA type of an element; a 16-bit float is held as its bits."""
_LOST = "__int_as_float(0x7fffffff)"


def stored_type(dtype: str) -> str:
    """Return the CUDA type of an element in memory; ValueError for a data type without kernels on GPUs."""
    if dtype not in TYPES:
        raise ValueError(f"values of {dtype} on a GPU: expected {', '.join(TYPES)}; quantised networks run on CPUs")
    return TYPES[dtype]


def type_of(nest: RowNest, access: Access) -> str:
    """Return the CUDA type of the elements that an access reads or writes; for buffers it is the type of the nest's numbers."""
    value = nest.graph.values.get(access.tensor)
    return element_of(nest).c if value is None else stored_type(value.dtype)


def half_of(nest: RowNest, access: Access | None) -> str:
    """Return the 16-bit data type of the elements that an access reads or writes; empty for other types."""
    value = None if access is None else nest.graph.values.get(access.tensor)
    return value.dtype if value is not None and value.dtype in HALVES else ""


def kept(nest: RowNest, access: Access | None, number: str) -> str:
    """Return the CUDA text that converts a number of the nest to an element to store."""
    half = half_of(nest, access)
    return f"to_{half}({number})" if half else number


def converted(nest: RowNest, access: Access | None, element: str) -> str:
    """Return the CUDA text that converts a loaded element to a number of the nest."""
    own = element_of(nest).c
    if half := half_of(nest, access):
        return f"from_{half}({element})"
    if access is None or (kind := type_of(nest, access)) == own:
        return element
    return f"from_float_1({element})" if kind == "float" else f"static_cast<{own}>({element})"


def lost_number(nest: RowNest) -> str:
    """Return the CUDA text of the value that replaces elements of a row whose id is outside the table: NaN, or 0 for integers."""
    return WHOLE.number(0) if nest.graph.whole else _LOST


def write_chosen(out: Writer, nest: RowNest, access: Access, name: str, of: str, pointer: str) -> None:
    """Write declarations for a table whose rows ids select.

    They are the id that `of` points to, whether it is outside the table, and the pointer `name` to the row. `pointer` is the text
    of the table's row 0.

    An id outside the table selects row 0, whose values `Pointers.loaded` replaces. A scatter leaves it out, and rows of the table
    that other teams own.
    """
    assert access.chosen is not None
    out.line(f"const long long {name}_id = *({of});")
    out.line(f"const bool {lost(name)} = {name}_id < 0 || {name}_id >= {access.chosen.count};")
    if access.chosen.scatter is not None:
        out.line(f"if ({lost(name)} || {name}_id % owners != owner) continue;")
        out.line(f"{type_of(nest, access)} *const {name} = {pointer} + {name}_id * {access.chosen.step}ll;")
        return
    row = f"{pointer} + ({lost(name)} ? 0 : {name}_id * {access.chosen.step}ll)"
    out.line(f"const {type_of(nest, access)} *const {name} = {row};")


def joined(nest: RowNest, access: Access | None, there: str, number: str) -> str:
    """Return the CUDA text of the stored value `number`. A scatter combines it with `there`, the element in memory."""
    scatter = None if access is None or access.chosen is None else access.chosen.scatter
    return number if scatter is None else element_of(nest).joined(scatter.body, there, number, 1)


def lost(name: str) -> str:
    """Return the name of the CUDA variable that says whether the id behind the row pointer `name` is outside the table."""
    return f"{name}_lost"
