"""Memory of a thread for a chain besides its tensors, in elements: copies of right operands, scores, rows of the nest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gensor_gym.chains.chain import Chain, Matrix
from gensor_gym.dataflow.expressions import Call, Expression, operations, walk
from gensor_gym.gir.lowering import Lowered, lower
from gensor_gym.gir.nest import RowNest
from gensor_gym.gir.placement import Level, Placement

LINE = 16
"""Elements of a cache line, the alignment of everything."""
_SHORT = {"add", "subtract", "multiply", "negative", "maximum", "minimum"}
"""Functions that take no longer than a load."""


def ceil_to(size: int, unit: int) -> int:
    """The smallest multiple of `unit` that is at least `size`."""
    return -(-size // unit) * unit


def pitch_of(chain: Chain) -> int:
    """Elements between rows of scores: whole lines, and not a multiple of 64, whose rows would meet in few sets of a cache."""
    lines = ceil_to(chain.columns, LINE) // LINE
    return LINE * (lines + (lines % 4 == 0))


def is_copied(matrix: Matrix, copy: bool) -> bool:
    """Whether a right operand is copied: by the schedule, or because its rows are not contiguous."""
    return copy or matrix.column not in (0, 1)


def placement(nest: RowNest) -> Placement:
    """Storage of the nest's values between its passes.

    Loads are repeated from their tensor, sums and products are recomputed, anything longer is kept.
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
    """The instructions of the nest between the products."""
    return lower(nest, placement(nest))


@dataclass(frozen=True)
class Room:
    """Offsets in a thread's scratch."""

    chain: Chain
    block: int
    widths: tuple[int, int]
    """Elements of a register tile's row of each product."""
    copied: tuple[bool, bool]
    rows: int

    @cached_property
    def copies(self) -> tuple[int, int]:
        """Elements of each right operand's copy: whole tiles, the last filled up."""
        shapes = zip(self.chain.products, self.widths, self.copied, strict=True)
        first, second = (copied * one.inner * ceil_to(one.columns, width) for one, width, copied in shapes)
        return ceil_to(first, LINE), ceil_to(second, LINE)

    @property
    def scores(self) -> int:
        """Offset of the scores."""
        return sum(self.copies)

    @property
    def kept(self) -> int:
        """Offset of the nest's rows."""
        return self.scores + self.block * pitch_of(self.chain)

    @cached_property
    def buffers(self) -> dict[str, int]:
        """Offset from `kept` of each of the nest's row buffers."""
        if self.chain.middle is None:
            return {}
        found, place = {}, 0
        for buffer in lowered(self.chain, self.chain.middle).kernels[0].buffers(Level.SRAM):
            found[buffer.name] = place
            place += self.rows * buffer.elements
        return found

    @cached_property
    def unit(self) -> int:
        """Elements of a thread."""
        nest = self.chain.middle
        kernels = lowered(self.chain, nest).kernels if nest is not None else ()
        return self.kept + ceil_to(sum(self.rows * b.elements for k in kernels for b in k.buffers(Level.SRAM)), LINE)
