"""Row nests whose vectors contain one element of each of several rows, because elements of neighbouring rows are contiguous.

A sum over the pixels of an image with channels last is one: its rows are channels. Each lane adds up its own row, so vectors are
loaded and stored as they are, and no reduction goes across lanes.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.gir.nest import Access, Online, RowNest


def goes_across(nest: RowNest) -> bool:
    """Return whether the lanes of vectors can run along the last axis of rows: for float32, one pass, and no rows of tables.

    Each load must be contiguous along that axis or equal for all its rows, and each store contiguous. Some columns must be apart
    in memory.
    """
    cut = nest.parts > 1 or nest.together > 1 or nest.passes > 1 or nest.graph.whole
    if cut or any(isinstance(cell.made, Online) for cell in nest.cells):
        return False
    loads = [cell.made for cell in nest.cells if isinstance(cell.made, Access)]
    stores = [to for _, to in nest.stores]
    every = [*loads, *stores]
    plain = all(one.chosen is None and nest.graph.values[one.tensor].dtype == "float32" for one in every)
    fits = all(one.rows[-1:] in ((0,), (1,)) for one in loads) and all(one.rows[-1:] == (1,) for one in stores)
    return plain and fits and any(one.is_turned for one in every)


def rows_of(nest: RowNest, vector: np.ndarray | int) -> np.ndarray:
    """Return the number of rows that vectors of each width contain, int64: all lanes of a nest that `goes_across`, else 1.

    The last axis of rows must consist of whole vectors.
    """
    lanes = np.asarray(vector, np.int64)
    return np.where(goes_across(nest) and nest.row_extents[-1] % lanes == 0, lanes, 1) if nest.row_extents else lanes**0
