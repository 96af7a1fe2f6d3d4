"""C text that interleaves two parts of a tensor: rows of two columns, in which each column is contiguous along the rows.

An example is the pixels of a transposed convolution with stride 2. A row is too short for a vector, so vectors lie along the
rows.
"""

from __future__ import annotations

from gensor_gym.codegen.gir.inputs import c_type
from gensor_gym.gir.igraph import KernelGraph
from gensor_gym.gir.nest import RowNest

_WIDTHS = (4, 8)
"""Numbers of rows of a step that make a vector."""


def is_zipped(nest: RowNest, kernel: KernelGraph, rows: int) -> bool:
    """Return whether a kernel interleaves two contiguous columns of float32, in steps of `rows` rows that are a vector each."""
    if nest.columns != 2 or nest.parts > 1 or nest.graph.whole or rows not in _WIDTHS or nest.row_extents[-1:] == ():
        return False
    if kernel.before or len(kernel.passes) != 1 or kernel.passes[0].after or len(along := kernel.passes[0].along) != 2:
        return False
    load, store = along
    if load.kind != "move" or store.kind != "move" or load.once or store.once or load.target.access is not None:
        return False
    read, write = load.sources[0][1].access, store.target.access
    if read is None or write is None or not c_type(nest, read) == c_type(nest, write) == "float":
        return False
    return read.is_turned and write.column == 1 and write.rows[-1] == 2 and nest.row_extents[-1] % rows == 0


def zipped(rows: int, source: str, column: int, target: str) -> list[str]:
    """Return C statements that copy `rows` rows; the columns are `column` elements apart at `source`, interleaved at `target`."""
    found = [f"const vec{rows} even = load_{rows}({source}), odd = load_{rows}({source} + {column});"]
    for half in range(2):
        lanes = ", ".join(str(lane // 2 + lane % 2 * rows) for lane in range(half * rows, (half + 1) * rows))
        found.append(f"store_{rows}({target} + {half * rows}, __builtin_shufflevector(even, odd, {lanes}));")
    return found
