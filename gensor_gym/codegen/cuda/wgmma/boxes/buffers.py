"""Buffers in shared memory, from which TMA stores a wgmma kernel's 16-bit output in boxes.

Every warp of a consumer has two buffers of its own. It fills one of them while TMA reads the other one. So warps do not wait for
each other, and the ring of stages is free for the operands of the next tile. Memory of the ring would be free only after all
consumers, and in a cluster all blocks, are done with it, and in a persistent kernel the producer has filled it again by then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gensor_gym.codegen.cuda.tensor_map import TensorMap

ITEM = 2
"""Bytes of an element of the output."""
WARP_ROWS = 16
"""Number of rows that a warp has in each 64 rows of a wgmma."""
GROUP = 16
"""Number of columns that one `stmatrix.x4` stores, of 16 rows."""
MOST_COLUMNS = 64
"""Most columns of a row in a buffer: 128 bytes, the longest swizzled row."""
BUFFERS = 2
"""Number of buffers of a warp."""


@dataclass(frozen=True)
class Boxes:
    """How the warps of a block's consumers store their tiles: 16 rows and `columns` columns at a time, by boxes of `tensor_map`.

    If the output is contiguous along m (`turned`), a buffer has a row of 16 elements for each column, else a row of columns for
    each of 16 rows. `name` is the output's name, `axes` are the operator's axes along the dimensions of the map, and `warps` is
    the number of warps of a block with buffers.
    """

    name: str
    tensor_map: TensorMap
    axes: tuple[int, ...]
    columns: int
    turned: bool
    warps: int

    @property
    def box_columns(self) -> int:
        """Number of columns in one box."""
        return math.prod(self.tensor_map.box) // WARP_ROWS

    @property
    def buffer_bytes(self) -> int:
        """Bytes of shared memory of one buffer, a multiple of the swizzle's period."""
        return WARP_ROWS * self.columns * ITEM

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of all buffers of a block."""
        return self.warps * BUFFERS * self.buffer_bytes
