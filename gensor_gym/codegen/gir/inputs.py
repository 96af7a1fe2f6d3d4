"""C for special inputs of row nests: integer tensors, converted to float when loaded, and tables whose rows ids select."""

from __future__ import annotations

import re

from gensor_gym.gir.nest import Access, RowNest

C_TYPES = {"float32": "float", "int32": "int32_t", "int64": "int64_t", "bool": "uint8_t"}
"""Data type of a graph's input -> C type of an element."""
NO_ROW = "no_row"
"""C name of a row of NaN, which is read for an id out of range, so that nothing outside the table is read."""


def c_type(nest: RowNest, access: Access) -> str:
    """C type of the elements that an access reads or writes; float for outputs and buffers."""
    value = nest.graph.values.get(access.tensor)
    return C_TYPES["float32" if value is None else value.dtype]


def is_whole(nest: RowNest, access: Access | None) -> bool:
    """Whether an access reads elements that are not float32: integers or booleans."""
    return access is not None and c_type(nest, access) != C_TYPES["float32"]


def chosen_row(access: Access, pointer: str, ids: str) -> str:
    """C pointer to the row that an id selects; `ids` is the id's variable, `pointer` points to row 0."""
    assert access.chosen is not None
    return f"{ids} >= 0 && {ids} < {access.chosen.count} ? {pointer} + (long){ids} * {access.chosen.step}L : {NO_ROW}"


def helpers(nest: RowNest, body: str) -> str:
    """C text of the conversions of integers and the row of NaN that a kernel's text `body` uses."""
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
