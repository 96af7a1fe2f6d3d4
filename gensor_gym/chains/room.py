"""Layout of a CPU thread's scratch memory for a chain of two products.

It holds copies of the right operands, the scores, and the row buffers of the nest between the products.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gensor_gym.chains.chain import Chain, Matrix
from gensor_gym.dataflow.expressions import Call, Expression, operations, walk
from gensor_gym.gir.lowering import Lowered, lower
from gensor_gym.gir.nest import RowNest
from gensor_gym.gir.placement import Level, Placement

LINE = 16
"""Number of float32 elements in a cache line, to which every part of the scratch memory is aligned."""
_SHORT = {"add", "subtract", "multiply", "negative", "maximum", "minimum"}
"""Scalar functions that take no longer than a load, so that their results are computed again instead of stored."""


def ceil_to(size: int, unit: int) -> int:
    """Round `size` up to a multiple of `unit`."""
    return -(-size // unit) * unit


def pitch_of(chain: Chain) -> int:
    """Return the distance between rows of scores in memory, in elements.

    It is whole cache lines and not a multiple of 64, so that rows use many cache sets.
    """
    lines = ceil_to(chain.columns, LINE) // LINE
    return LINE * (lines + (lines % 4 == 0))


def is_copied(matrix: Matrix, copy: bool) -> bool:
    """Return whether a product's right operand is copied.

    The schedule can request the copy (`copy`), and it is necessary if the operand's columns are strided.
    """
    return copy or matrix.column not in (0, 1)


def placement(nest: RowNest) -> Placement:
    """Choose the memory level of each value that several passes of the row nest read.

    Inputs are loaded again, values of one short operation are computed again, and all others are kept in a row buffer.
    """
    return tuple(_level(nest, name) for name in nest.crossing)


def _level(nest: RowNest, name: str) -> Level:
    cell = nest.cell[name]
    if cell.is_load:
        return Level.DRAM
    short = isinstance(cell.made, Expression) and operations(cell.made) <= 1 and _words(cell.made) <= _SHORT
    return Level.RECOMPUTE if short and not cell.is_reduction else Level.SRAM


def _words(expression: Expression) -> set[str]:
    return {part.function for part in walk(expression) if isinstance(part, Call)}


def lowered(chain: Chain, nest: RowNest) -> Lowered:
    """Lower the row nest between a chain's products to its instruction graph."""
    return lower(nest, placement(nest))


@dataclass(frozen=True)
class Room:
    """Layout of a CPU thread's scratch memory for a chain of two products.

    In order, it holds copies of the right operands, the scores of `block` rows, and the row buffers of the nest. Offsets are in
    elements.
    """

    chain: Chain
    block: int
    widths: tuple[int, int]
    """Number of columns in the register tile of each product."""
    copied: tuple[bool, bool]
    rows: int

    @cached_property
    def copies(self) -> tuple[int, int]:
        """Number of elements of the copy of each product's right operand, in whole register tiles; 0 if it is not copied."""
        shapes = zip(self.chain.products, self.widths, self.copied, strict=True)
        first, second = (copied * one.inner * ceil_to(one.columns, width) for one, width, copied in shapes)
        return ceil_to(first, LINE), ceil_to(second, LINE)

    @property
    def scores(self) -> int:
        """Offset of the scores in the scratch memory, after the copies of the right operands."""
        return sum(self.copies)

    @property
    def kept(self) -> int:
        """Offset of the row nest's buffers in the scratch memory, after the scores."""
        return self.scores + self.block * pitch_of(self.chain)

    @cached_property
    def buffers(self) -> dict[str, int]:
        """Offset of each row buffer of the nest, counted from `kept`, by name of the buffer."""
        if self.chain.middle is None:
            return {}
        found, place = {}, 0
        for buffer in lowered(self.chain, self.chain.middle).kernels[0].buffers(Level.SRAM):
            found[buffer.name] = place
            place += self.rows * buffer.elements
        return found

    @cached_property
    def unit(self) -> int:
        """Number of elements of a thread's whole scratch memory."""
        nest = self.chain.middle
        kernels = lowered(self.chain, nest).kernels if nest is not None else ()
        return self.kept + ceil_to(sum(self.rows * b.elements for k in kernels for b in k.buffers(Level.SRAM)), LINE)
