"""Layout of a chain's kernel with mma.sync: rows and threads of a block, tiles in shared memory, and a warp's instructions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gensor_gym.chains.chain import Chain, Matrix
from gensor_gym.chains.gpu.legal import check
from gensor_gym.chains.gpu.room import Room
from gensor_gym.chains.gpu.stream import Stream
from gensor_gym.chains.gpu.tiles import HEIGHT, ITEM, PAD, WARP, is_deep
from gensor_gym.codegen.chains.program import ChainProgram


@dataclass(frozen=True)
class Tile:
    """A tile of an operand in shared memory: `shape` elements from byte `offset` on, in rows that are `pitch` elements apart."""

    name: str
    matrix: Matrix
    shape: tuple[int, int]
    steps: tuple[int, int]
    """Distances in the tensor between the tile's rows, and between its columns, in elements."""
    limits: tuple[int, int]
    """Extents of the matrix along the tile's rows, and along its columns."""
    deep: bool
    """Whether the tile has a row for each element of the reduction, so `ldmatrix` transposes it. False for a left operand."""
    offset: int

    @property
    def pitch(self) -> int:
        """Distance between rows in shared memory, in elements."""
        return self.shape[1] + PAD

    @property
    def nbytes(self) -> int:
        """Bytes of shared memory."""
        return ITEM * self.shape[0] * self.pitch

    @cached_property
    def width(self) -> int:
        """Number of elements of one copy.

        They are adjacent in memory, aligned, and either all inside or all outside the matrix.
        """
        places = (self.matrix.offset, *self.matrix.batch, self.steps[0], self.limits[1])
        beside = self.steps[1] == 1 or self.limits[1] == 1
        return next(w for w in (8, 4, 2, 1) if w == 1 or (beside and all(place % w == 0 for place in places)))


@dataclass(frozen=True)
class Plan:
    """Layout of the kernel of a chain's schedule with mma.sync. ValueError if the chain has no kernel on tensor cores."""

    program: ChainProgram

    def __post_init__(self) -> None:
        check(self.chain, self.program.hardware)

    @property
    def chain(self) -> Chain:
        """The chain of two products that the kernel computes."""
        return self.program.chain

    @cached_property
    def stream(self) -> Stream:
        """Passes over tiles of keys in which the row nest turns scores into weights."""
        return Stream.of(self.chain)

    @cached_property
    def room(self) -> Room:
        """Shared memory, registers and padded extents of the chain's blocks."""
        return Room(self.chain, self.program.hardware)

    def value(self, name: str) -> int:
        """Return the value of the schedule's field `name`."""
        return self.program.schedule.value(name)

    @property
    def header(self) -> dict[str, np.ndarray]:
        """Values of the schedule's fields by name, int64 [1]."""
        return type(self.program.schedule).columns(self.program.schedule.row[None])

    @property
    def defers(self) -> bool:
        """Whether the sums of the output are rescaled some time after the running maximum has changed, by `Between.rescale`."""
        return False

    @property
    def score(self) -> str:
        """CUDA text of a lane's score `i` in the instruction with index `tile_n` along the keys."""
        return "scores[tile_m][tile_n][i]"

    def sum(self, place: str) -> str:
        """Return the CUDA text of a lane's sum `place` in instruction `tile_out` along the columns of the output."""
        return f"sums[tile_m][tile_out][{place}]"

    @property
    def threads(self) -> int:
        """Number of threads of a block."""
        return self.value("warps") * WARP

    @property
    def rows(self) -> int:
        """Number of rows of a block."""
        return self.value("warps") * self.value("heights") * HEIGHT

    @cached_property
    def resident(self) -> int:
        """Number of blocks that a multiprocessor runs at the same time."""
        return int(self.room.resident(self.header)[0])

    @property
    def parts(self) -> int:
        """Number of blocks that compute the rows of one batch element."""
        return -(-self.chain.rows // self.rows)

    @property
    def tiles(self) -> int:
        """Number of tiles of keys."""
        return -(-self.chain.columns // self.value("keys"))

    @property
    def tiles_of_block(self) -> str:
        """CUDA text of the number of tiles of keys that a block needs (`output.write_element`)."""
        return "TILES" if self.chain.diagonal is None else "seen_tiles"

    @property
    def ahead(self) -> int:
        """Number of tiles by which copies run ahead of the products."""
        return self.value("stages") - 1

    @cached_property
    def left(self) -> Tile:
        """The tile in shared memory with the block's rows of the left operand."""
        one, product = self.chain.left, self.chain.products[0]
        shape = self.rows, self.room.inner
        return Tile("left", one, shape, (one.row, one.column), (product.rows, product.inner), deep=False, offset=0)

    @cached_property
    def rights(self) -> tuple[Tile, Tile]:
        """The tiles in shared memory of the right operands of both products, in the first buffer."""
        keys, (one, other) = self.value("keys"), self.chain.products
        first = self._right("first", self.chain.first, (self.room.inner, keys), (one.inner, one.columns), self.left.nbytes)
        place = first.offset + first.nbytes
        return first, self._right("second", self.chain.second, (keys, self.room.out), (other.inner, other.columns), place)

    def _right(self, name: str, matrix: Matrix, shape: tuple[int, int], limits: tuple[int, int], offset: int) -> Tile:
        """Return the tile of a right operand.

        `shape` is the tile's extents and `limits` the matrix's, both along (reduction, columns).
        """
        steps = matrix.row, matrix.column
        if is_deep(matrix):
            return Tile(name, matrix, shape, steps, limits, deep=True, offset=offset)
        return Tile(name, matrix, shape[::-1], steps[::-1], limits[::-1], deep=False, offset=offset)

    @property
    def buffer(self) -> int:
        """Number of bytes of one buffer in shared memory: a tile of each product's right operand."""
        return sum(tile.nbytes for tile in self.rights)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a block."""
        return self.left.nbytes + self.value("stages") * self.buffer

    @property
    def constants(self) -> dict[str, tuple[int, str]]:
        """Constants that the kernel's text may use, by name: (value, meaning)."""
        chain, room = self.chain, self.room
        return {
            "ROWS": (chain.rows, "rows of an element of the batch"),
            "COLUMNS": (chain.columns, "columns of its scores: keys"),
            "BLOCK_ROWS": (self.rows, "rows of a block"), "PARTS": (self.parts, "blocks of an element of the batch"),
            "KEYS": (self.value("keys"), "keys of a tile"), "TILES": (self.tiles, "tiles of keys"),
            "DIAGONAL": (self.chain.diagonal or 0, "a row sees keys up to its own number plus this one"),
            "THREADS": (self.threads, "of a block"), "M_TILES": (self.value("heights"), "instructions of a warp along rows"),
            "KEY_TILES": (self.value("keys") // 8, "instructions along a tile of keys"),
            "OUT_TILES": (room.out // 8, "instructions along the columns of the output"),
            "POINTS": (room.inner // 16, "instructions along the first product's reduction"),
            "BUFFER": (self.buffer, "bytes of a buffer of shared memory"),
            "BUFFERS": (self.value("stages") * self.buffer, "bytes of all of them"),
        }  # fmt: skip
