"""C text that converts elements of tensors to and from the numbers of a row nest, and that selects rows of tables by ids."""

from __future__ import annotations

import re

from gensor_gym.codegen.c.layout.operands import ENDINGS
from gensor_gym.gir.nest import Access, RowNest

C_TYPES = {
    "float32": "float", "bfloat16": "uint16_t", "float16": "uint16_t", "int32": "int32_t", "int64": "int64_t", "bool": "uint8_t",
    "int8": "int8_t",
}  # fmt: skip
"""Data type of a graph's value in memory -> C type of an element."""
NO_ROW = "no_row"
"""C name of a row of NaN (0 for integers), which is read for an id outside the table."""


def c_type(nest: RowNest, access: Access) -> str:
    """Return the C type of the elements that an access reads or writes; for buffers it is the type of the nest's numbers."""
    return C_TYPES[_dtype(nest, access)]


def _dtype(nest: RowNest, access: Access) -> str:
    value = nest.graph.values.get(access.tensor)
    return item_of(nest) if value is None else value.dtype


def ending(nest: RowNest, access: Access | None) -> str:
    """Return the suffix of the names of helpers for elements of 16-bit floats and int8, such as `_bfloat`.

    It is empty for other data types.
    """
    return "" if access is None else ENDINGS.get(_dtype(nest, access), "")


def item_of(nest: RowNest) -> str:
    """Return the data type of the numbers that a row nest computes."""
    return nest.graph.whole_dtype if nest.graph.whole else nest.graph.dtype


def is_other(nest: RowNest, access: Access | None) -> bool:
    """Return whether an access reads elements that are converted, lane by lane, to the numbers that the nest computes.

    These are integers and floats other than 16-bit floats and int8, which have helpers.
    """
    return access is not None and not ending(nest, access) and c_type(nest, access) != C_TYPES[item_of(nest)]


def chosen_row(nest: RowNest, access: Access, pointer: str, ids: str) -> str:
    """Return the C pointer to the row of a table that an id selects.

    `ids` is the id's variable, `pointer` points to row 0. An id outside the table selects a row of NaN, or of 0 for integers; ids
    of a scatter have been checked.
    """
    assert access.chosen is not None
    if access.chosen.scatter is not None:
        return f"{pointer} + (long){ids} * {access.chosen.step}L"
    kind = c_type(nest, access)
    lost = NO_ROW if kind == C_TYPES[item_of(nest)] else f"(const {kind} *){NO_ROW}"
    return f"{ids} >= 0 && {ids} < {access.chosen.count} ? {pointer} + (long){ids} * {access.chosen.step}L : {lost}"


def conversions(item: str, body: str) -> str:
    """Return the C functions `from_TYPE_WIDTH` that `body` calls.

    They load elements of other types as vectors of the C type `item`.
    """
    text = ""
    for kind, width in dict.fromkeys(re.findall(r"from_(float|\w+_t)_(\d+)\(", body)):
        one = "from_float_1" if kind == "float" else f"({item})"
        if width == "1":
            continue
        text += f"""static inline vec{width} from_{kind}_{width}(const {kind} *at, long stride, int lanes) {{
    vec{width} x = {{0}};
    for (int i = 0; i < lanes; i++) x[i] = {one}(at[i * stride]);
    return x;
}}
"""
    return text


def helpers(nest: RowNest, body: str) -> str:
    """Return the C text of the conversions of inputs and the row of NaN that a kernel's text `body` uses."""
    item = C_TYPES[item_of(nest)]
    text = conversions(item, body)
    found = [cell.made for cell in nest.cells if isinstance(cell.made, Access) and cell.made.chosen]
    if found:
        wide = 2 if item == "float" and any(c_type(nest, access) == "int64_t" for access in found) else 1
        last = wide * max((nest.columns - 1) * access.column + 1 for access in found) - 1
        payload = "0x3fffff" if any(ending(nest, access) for access in found) else ""  # its 16-bit halves are NaN, too
        lost = f'__builtin_nanf("{payload}")' if item == "float" else "0"
        text += f"static const {item} {NO_ROW}[{last + 1}] = {{[0 ... {last}] = {lost}}};\n"
    return text
