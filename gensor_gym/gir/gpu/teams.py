"""Teams of threads on a GPU: a team works on each row, and a block has several teams.

A lane (thread) loads `vector` elements at once and has `tile` vectors in parallel, as on a CPU. The team of a row has enough
lanes for all columns in one step, up to the limit of a block. The field `rows` is the number of IntelliGen's units of a group:
the warps of a block, or its teams of several warps. A team of less than a warp shares the warp with the teams of adjacent rows.
The field `loop` is the number of successive steps of a block. If a kernel has one pass over the columns, a step is one tile of
columns, and blocks may share a row: each block then stores its part of every reduction, and a second launch combines the parts.
If a kernel has several passes, a step is all columns of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gensor_gym.gir.nest import Access, RowNest
from gensor_gym.hardware.types import Hardware

WARP = 32
KNOWN = ("vector", "tile", "rows", "loop", "streaming")
"""Fields of a schedule that matter on a GPU; all other fields have their first value."""
FINISH_THREADS = 1024
"""Most threads of a block that combines the parts of one row."""


@dataclass(frozen=True)
class Teams:
    """The shape of a kernel's blocks for many schedules, int64 [B] each. A team is the lanes that share a row."""

    lanes: np.ndarray
    """Number of threads that share a row, a power of two."""
    rows: np.ndarray
    """Number of rows that a block computes at the same time, a power of two."""
    threads: np.ndarray
    """Number of threads of a block, which are whole warps."""
    wide: np.ndarray
    """Number of columns that a team (the lanes that share a row) computes in one step."""
    steps: np.ndarray
    """Number of steps in which a team computes all columns of its row."""

    def shares(self, nest: RowNest, passes: int, loop: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Divide the rows among blocks, for a kernel with `passes` passes over the columns.

        Return (blocks that share a row, steps of rows that a block runs in succession, number of blocks), [B] each.
        """
        along = self.steps if passes == 1 else np.ones_like(self.steps)
        parts = -(-along // loop)
        turns = np.maximum(loop // along, 1)
        return parts, turns, parts * -(-nest.rows // (self.rows * turns))


def teams_of(nest: RowNest, header: dict[str, np.ndarray], hardware: Hardware) -> Teams:
    """Return the shape of a kernel's blocks for many schedules. `header` has the schedules' fields by name, int64 [B] each."""
    own = header["tile"] * header["vector"]
    wanted = 2 ** np.ceil(np.log2(-(-nest.columns // own))).astype(np.int64)
    lanes = np.minimum(wanted, hardware.threads_per_block // header["rows"])
    rows = header["rows"] * np.maximum(WARP // lanes, 1)
    wide = lanes * own
    return Teams(lanes, rows, rows * lanes, wide, -(-nest.columns // wide))


@dataclass(frozen=True)
class BlockShape:
    """The shape of one kernel's blocks for one schedule.

    It has the fields of `Teams` as single numbers, and the schedule's own fields.
    """

    lanes: int
    rows: int
    threads: int
    wide: int
    steps: int
    parts: int
    """Number of blocks that share a row."""
    turns: int
    """Number of steps of rows that a block runs in succession."""
    blocks: int
    vector: int
    tile: int
    loop: int
    streaming: bool

    @property
    def finish_threads(self) -> int:
        """Number of threads of the second launch's blocks, which combine the partial results of the `parts` blocks of a row."""
        return min(max(1 << (self.parts - 1).bit_length(), WARP), FINISH_THREADS)


def block_shape(nest: RowNest, header: dict[str, int], passes: int, hardware: Hardware) -> BlockShape:
    """Return the shape of a kernel's blocks for one schedule with the fields `header`.

    `passes` is the number of the kernel's passes over the columns.
    """
    values = {name: np.array([value]) for name, value in header.items()}
    teams = teams_of(nest, values, hardware)
    shares = teams.shares(nest, passes, values["loop"])
    arrays = (teams.lanes, teams.rows, teams.threads, teams.wide, teams.steps, *shares)
    lanes, rows, threads, wide, steps, parts, turns, blocks = (int(array[0]) for array in arrays)
    vector, tile, loop, streaming = header["vector"], header["tile"], header["loop"], bool(header["streaming"])
    return BlockShape(lanes, rows, threads, wide, steps, parts, turns, blocks, vector, tile, loop, streaming)


def lies_across(access: Access, extents: tuple[int, ...]) -> bool:
    """Return whether adjacent rows of a row nest, and not adjacent columns, access contiguous elements of a tensor.

    A block with several rows transposes its tiles of such tensors in shared memory, so that accesses use whole lines of memory.
    """
    if access.chosen is not None:
        return False
    return access.column not in (0, 1) and bool(extents) and access.rows[-1] == 1 and extents[-1] > 1
