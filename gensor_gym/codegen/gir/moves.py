"""C text that loads and stores elements of rows, as vectors or single numbers, in their types in memory."""

from __future__ import annotations

from gensor_gym.codegen.gir.elements import element_of
from gensor_gym.codegen.gir.inputs import c_type, ending, is_other
from gensor_gym.gir.igraph import Slice
from gensor_gym.gir.nest import RowNest


def loaded(nest: RowNest, part: Slice, row: str, here: str, width: int, lanes: int | None) -> str:
    """Return the C text that loads `width` lanes, or only the first `lanes`, from column `here` on of a slice of a buffer.

    `row` is the address at which the slice's row begins.
    """
    stride = _stride(part)
    at = f"{row} + {scaled(here, stride)}"
    if width == 1:
        return taken(nest, part, f"({at})")
    if part.access is not None and is_other(nest, part.access):
        return f"from_{c_type(nest, part.access)}_{width}({at}, {stride}, {lanes or width})"
    kind = ending(nest, part.access)
    if lanes is not None and not part.buffer.padded:
        fill = "0" if kind else element_of(nest).number(0.0)
        if stride == 1:
            return f"load_masked{kind}_{width}({at}, 0, {lanes}, {fill})"
        return f"gather_masked{kind}_{width}({at}, {stride}, 0, {(lanes - 1) * stride + 1}, {fill})"
    return f"load{kind}_{width}({at})" if stride == 1 else f"gather{kind}_{width}({at}, {stride})"


def taken(nest: RowNest, part: Slice, at: str) -> str:
    """Return the C text of the single element of a slice that `at` points to."""
    if kind := ending(nest, part.access):
        return f"load{kind}_1({at})"
    cut = nest.graph.whole and part.access is not None and c_type(nest, part.access) == "float"
    return f"from_float_1(*{at})" if cut else f"*{at}"


def stored(nest: RowNest, part: Slice, row: str, here: str, shape: tuple[int, int | None, bool], name: str) -> str:
    """Return the C statement that stores the vector `name` to a slice of a buffer, from column `here` on.

    `row` is the address at which the slice's row begins.

    `shape` is (lanes, lanes that are stored or None for all, whether stores bypass the caches).
    """
    (width, lanes, streaming), stride = shape, _stride(part)
    at = f"{row} + {scaled(here, stride)}"
    if width == 1:
        return put(nest, part, f"({at})", name)
    kind = ending(nest, part.access)
    if stride != 1:
        return f"scatter{kind}_{width}({at}, {stride}, {lanes or width}, {name});"
    if lanes is not None and not part.buffer.padded:
        return f"store_masked{kind}_{width}({at}, 0, {lanes}, {name});"
    return f"{'stream' if streaming and not part.buffer.padded and not kind else 'store'}{kind}_{width}({at}, {name});"


def put(nest: RowNest, part: Slice, at: str, name: str) -> str:
    """Return the C statement that stores the single number `name` at the address `at` of a slice."""
    kind = ending(nest, part.access)
    return f"store{kind}_1({at}, {name});" if kind else f"*{at} = {name};"


def scaled(here: str, stride: int) -> str:
    """Return the C text of the distance in elements of column `here` from the row's start."""
    return here if stride == 1 else f"({here}) * {stride}"


def _stride(part: Slice) -> int:
    return 1 if part.access is None else part.access.column
