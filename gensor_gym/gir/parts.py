"""Rows of a suitable length for a CPU: short rows are joined, and long rows are cut into parts that several threads compute.

Before anything reads a reduction, its results on the parts of a row are combined, so every pass is a separate kernel.
A step that interleaves several parts reads several streams at once, which is faster than one stream from beyond the private
caches, for any number of threads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import HALVES
from gensor_gym.gir.nest import Access, Online, RowNest, row_nest
from gensor_gym.hardware.types import Hardware

FLOATS = ("float32", *HALVES)
"""Types of elements that kernels turn in registers."""
LEAST_COLUMNS, MOST_PARTS = 8192, 64
"""Fewest columns of a part of a row, so that combining the parts takes a small share of the time, and most parts of a row."""
LEAST_PASSES = 32768
"""Fewest columns from which on a row that needs several passes is cut into parts, because each pass becomes a launch.

Two cores of an Intel Xeon: softmax of one row, 16384 columns 4.6 us in parts and 4.4 whole, 32768 columns 7.1 and 8.3.
"""
SHORT = 128
"""Number of columns from which on a row is long enough for whole tiles of vectors; shorter rows are joined."""
_LINE = 16
"""Number of elements of a cache line; parts of whole lines are preferred."""
_FEW = 4
"""Rows are cut into equal parts only if these are at least 1 / `_FEW` of the largest possible number, lest cores be idle."""


def nest_on(graph: Dataflow, hardware: Hardware) -> RowNest:
    """Express a dataflow graph as loops over rows and columns for a machine.

    On a CPU, short rows are joined, long rows are cut into parts, and rows are taken in an order in which loads can be turned.
    ValueError as from `row_nest`.
    """
    nest = row_nest(graph)
    return in_parts(with_rows_turned(with_long_rows(nest)), hardware.units) if hardware.kind == "cpu" else nest


def with_rows_turned(nest: RowNest) -> RowNest:
    """Return the nest with the axis of rows last along which elements of a load are contiguous, if no load is turned yet.

    It is a load of floats that varies along all axes, because all others are reordered too. A block of such rows is loaded
    together and transposed in registers, and the other elements of a line are read soon after. In the order of the output, an
    image with channels last would be read once for every channel.
    """
    loads = [cell.made for cell in nest.cells if isinstance(cell.made, Access)]
    large = (one for one in loads if one.column > 1 and one.chosen is None and all(one.rows) and _dtype(nest, one) in FLOATS)
    turned = (one.rows.index(1) for one in large if 1 in one.rows)
    last = None if nest.scattered is not None or any(one.is_turned for one in loads) else next(turned, None)
    if last is None:
        return nest
    order = [*(axis for axis in range(len(nest.row_extents)) if axis != last), last]
    moved = _each(nest, lambda access: dataclasses.replace(access, rows=tuple(access.rows[axis] for axis in order)))
    return dataclasses.replace(moved, row_extents=tuple(nest.row_extents[axis] for axis in order))


def with_long_rows(nest: RowNest) -> RowNest:
    """Return the nest with short rows joined along the last axis of rows, if that is possible.

    The nest must have no reductions, and all tensors must continue from row to row without gaps. For example, joined rows let a
    concatenation along channels copy images in whole vectors instead of row by row.
    """
    accesses = _accesses(nest)
    is_plain = nest.passes == 1 and not any(cell.is_reduction for cell in nest.cells)
    while is_plain and nest.columns < SHORT and nest.rows > 1 and all(_goes_on(one, nest.columns) for one in accesses):
        nest = _joined(nest, _rows_together(nest.row_extents[-1], nest.columns))
        accesses = _accesses(nest)
    return nest


def _rows_together(extent: int, columns: int) -> int:
    """Return how many rows to join: the least divisor of `extent` that makes a long row of whole cache lines.

    `extent` if no divisor does.
    """
    counts = (count for count in range(2, extent + 1) if extent % count == 0)
    return next((count for count in counts if count * columns >= SHORT and count * columns % _LINE == 0), extent)


def _joined(nest: RowNest, count: int) -> RowNest:
    *outer, extent = nest.row_extents
    kept = [extent // count] if extent > count or not outer else []

    def joined(access: Access) -> Access:
        return dataclasses.replace(access, rows=(*access.rows[:-1], *(count * access.rows[-1] for _ in kept)))

    return dataclasses.replace(
        _each(nest, joined), row_extents=(*outer, *kept), columns=count * nest.columns, together=count * nest.together,
    )  # fmt: skip


def _goes_on(access: Access, columns: int) -> bool:
    """Return whether each row of the tensor begins where the previous row ends, so that rows can be joined.

    This is also true for a single element that all rows share.
    """
    return access.chosen is None and access.rows[-1] == access.column * columns


def in_parts(nest: RowNest, units: int) -> RowNest:
    """Cut long rows into parts if there are fewer rows than cores, or a single row. Return the nest unchanged otherwise.

    Rows stay whole if elements of adjacent rows are contiguous in some tensor, because its loads are transposed in registers, and
    if rows are scattered, because threads then share the rows of a table.
    """
    count, columns = parts_of(nest.columns)
    left = nest.columns - (count - 1) * columns
    if nest.scattered is not None or (nest.passes > 1 and nest.columns < LEAST_PASSES):
        return nest
    if nest.parts > 1 or count == 1 or nest.rows >= max(units, 2) or any(one.is_turned for one in _accesses(nest)):
        return nest

    def cut(access: Access) -> Access:
        return dataclasses.replace(access, rows=(*access.rows, columns * access.column))

    return dataclasses.replace(
        _each(nest, cut), row_extents=(*nest.row_extents, count), columns=columns, parts=count,
        last=0 if left == columns else left,
    )  # fmt: skip


def parts_of(columns: int) -> tuple[int, int]:
    """Choose how to cut a row of `columns` columns into parts.

    Return (number of parts, number of columns of each part except the last).

    There are as many equal parts as possible, of whole cache lines if possible. If equal parts would be too few, the last part is
    shorter.
    """
    most = min(MOST_PARTS, columns // LEAST_COLUMNS)
    if most < 2:
        return 1, columns
    fitting = (count for count in range(2, most + 1) if columns % count == 0)
    count = max(fitting, key=lambda count: (columns // count % _LINE == 0, count), default=1)
    if _FEW * count >= most and count > 1:
        return count, columns // count
    width = -(-columns // (most * _LINE)) * _LINE
    return -(-columns // width), width


def _each(nest: RowNest, change: Callable[[Access], Access]) -> RowNest:
    """Return the nest with all accesses changed, also those to ids."""

    def changed(access: Access) -> Access:
        chosen = access.chosen
        if chosen is not None:
            chosen = dataclasses.replace(chosen, ids=changed(chosen.ids))
        return change(dataclasses.replace(access, chosen=chosen))

    cells = (dataclasses.replace(one, made=changed(one.made)) if isinstance(one.made, Access) else one for one in nest.cells)
    return dataclasses.replace(nest, cells=tuple(cells), stores=tuple((name, changed(to)) for name, to in nest.stores))


def _dtype(nest: RowNest, access: Access) -> str | None:
    value = nest.graph.values.get(access.tensor)
    return None if value is None else value.dtype


def _accesses(nest: RowNest) -> list[Access]:
    return [cell.made for cell in nest.cells if isinstance(cell.made, Access)] + [to for _, to in nest.stores]


def goes_across(nest: RowNest) -> bool:
    """Return whether the lanes of vectors can run along the last axis of rows: for floats and int8, one pass, no rows of tables.

    A sum over the pixels of an image with channels last is such a nest: its rows are channels. Each lane adds up its own row, so
    vectors are loaded and stored as they are, and no reduction goes across lanes. Each load must be contiguous along that axis or
    equal for all its rows, and each store contiguous. Some columns must be apart in memory.
    """
    cut = nest.parts > 1 or nest.together > 1 or nest.passes > 1 or nest.graph.whole
    if cut or any(isinstance(cell.made, Online) for cell in nest.cells):
        return False
    loads = [cell.made for cell in nest.cells if isinstance(cell.made, Access)]
    stores = [to for _, to in nest.stores]
    every = [*loads, *stores]
    plain = all(one.chosen is None and _dtype(nest, one) in (*FLOATS, "int8") for one in every)
    fits = all(one.rows[-1:] in ((0,), (1,)) for one in loads) and all(one.rows[-1:] == (1,) for one in stores)
    return plain and fits and any(one.is_turned for one in every)


def rows_of(nest: RowNest, vector: np.ndarray | int) -> np.ndarray:
    """Return the number of rows that vectors of each width contain, int64: all lanes of a nest that `goes_across`, else 1.

    The last axis of rows must consist of whole vectors.
    """
    lanes = np.asarray(vector, np.int64)
    return np.where(goes_across(nest) and nest.row_extents[-1] % lanes == 0, lanes, 1) if nest.row_extents else lanes**0
