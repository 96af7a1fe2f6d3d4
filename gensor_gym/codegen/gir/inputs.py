"""Inputs that are no plain float32 tensors, in C: whole numbers, which become floats as they are loaded, rows that ids choose."""

from __future__ import annotations

import re

from gensor_gym.gir.nest import Access, RowNest

C_TYPES = {"float32": "float", "int32": "int32_t", "int64": "int64_t", "bool": "uint8_t"}
"""Element of each data type that a graph may read."""
NO_ROW = "no_row"
"""Row of NaN that replaces a missing row. So a wrong id reads nothing outside of the table."""


def c_type(nest: RowNest, access: Access) -> str:
    """C type of an input's, an output's or a buffer's elements."""
    value = nest.graph.values.get(access.tensor)
    return C_TYPES["float32" if value is None else value.dtype]


def is_whole(nest: RowNest, access: Access | None) -> bool:
    """Whether elements are no floats."""
    return access is not None and c_type(nest, access) != C_TYPES["float32"]


def chosen_row(access: Access, pointer: str, ids: str) -> str:
    """The pointer to the row that an id, the variable `ids`, chooses; `pointer` is that to row 0."""
    assert access.chosen is not None
    return f"{ids} >= 0 && {ids} < {access.chosen.count} ? {pointer} + (long){ids} * {access.chosen.step}L : {NO_ROW}"


def helpers(nest: RowNest, body: str) -> str:
    """C of the functions and constants that a kernel's text names."""
    text = ""
    for kind, width in dict.fromkeys(re.findall(r"from_(\w+)_t_(\d+)\(", body)):
        text += f"""static inline vec{width} from_{kind}_t_{width}(const {kind}_t *at, long stride, int lanes) {{
    vec{width} x = {{0}};
    for (int i = 0; i < lanes; i++) x[i] = (float)at[i * stride];
    return x;
}}
"""
    found = [cell.made for cell in nest.cells if isinstance(cell.made, Access) and cell.made.chosen]
    if found:
        last = max((nest.columns - 1) * access.column for access in found)
        text += f'static const float {NO_ROW}[{last + 1}] = {{[0 ... {last}] = __builtin_nanf("")}};\n'
    return text
