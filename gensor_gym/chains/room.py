"""Layout of a thread's scratch memory for a chain: copies of right operands, scores, and row buffers of the nest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gensor_gym.chains.chain import Chain, Matrix
from gensor_gym.dataflow.expressions import Call, Expression, operations, walk
from gensor_gym.gir.lowering import Lowered, lower
from gensor_gym.gir.nest import RowNest
from gensor_gym.gir.placement import Level, Placement

LINE = 16
"""Elements of a cache line, to which every part is aligned."""
_SHORT = {"add", "subtract", "multiply", "negative", "maximum", "minimum"}
"""Scalar functions that take no longer than a load."""


def ceil_to(size: int, unit: int) -> int:
    """The smallest multiple of `unit` that is at least `size`."""
    return -(-size // unit) * unit


def pitch_of(chain: Chain) -> int:
    """Distance between rows of scores, in elements: whole cache lines, not a multiple of 64, so that rows use many cache sets."""
    lines = ceil_to(chain.columns, LINE) // LINE
    return LINE * (lines + (lines % 4 == 0))


def is_copied(matrix: Matrix, copy: bool) -> bool:
    """Whether a right operand is copied, because the schedule requests it (`copy`) or because its rows are not contiguous."""
    return copy or matrix.column not in (0, 1)


def placement(nest: RowNest) -> Placement:
    """Placement of the nest's values that are used in a later pass.

    Loads are repeated, values of one short operation are recomputed, and all others are kept in a row buffer.
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
    """Instruction graph of the nest between the products."""
    return lower(nest, placement(nest))


@dataclass(frozen=True)
class Room:
    """Layout of a thread's scratch memory. Offsets are in elements."""

    chain: Chain
    block: int
    widths: tuple[int, int]
    """Number of columns of each product's register tile."""
    copied: tuple[bool, bool]
    rows: int

    @cached_property
    def copies(self) -> tuple[int, int]:
        """Number of elements of each right operand's copy, in whole register tiles; 0 if it is not copied."""
        shapes = zip(self.chain.products, self.widths, self.copied, strict=True)
        first, second = (copied * one.inner * ceil_to(one.columns, width) for one, width, copied in shapes)
        return ceil_to(first, LINE), ceil_to(second, LINE)

    @property
    def scores(self) -> int:
        """Offset of the scores, after the copies."""
        return sum(self.copies)

    @property
    def kept(self) -> int:
        """Offset of the nest's row buffers."""
        return self.scores + self.block * pitch_of(self.chain)

    @cached_property
    def buffers(self) -> dict[str, int]:
        """Offset of each of the nest's row buffers from `kept`, by name."""
        if self.chain.middle is None:
            return {}
        found, place = {}, 0
        for buffer in lowered(self.chain, self.chain.middle).kernels[0].buffers(Level.SRAM):
            found[buffer.name] = place
            place += self.rows * buffer.elements
        return found

    @cached_property
    def unit(self) -> int:
        """Number of elements of a thread's scratch memory."""
        nest = self.chain.middle
        kernels = lowered(self.chain, nest).kernels if nest is not None else ()
        return self.kept + ceil_to(sum(self.rows * b.elements for k in kernels for b in k.buffers(Level.SRAM)), LINE)
