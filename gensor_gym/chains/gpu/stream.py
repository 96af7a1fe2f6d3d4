"""The passes over tiles of keys in which a chain's row nest turns scores into weights.

Registers hold the scores of one tile only.

A reduction along the columns is complete only after a pass. So a nest takes one pass for each reduction that depends on another,
and every pass computes the scores again. Weights that are exp(x - max(x)) times a scalar of the row take one pass fewer, with a
running maximum: when it grows, the sums so far are rescaled. The scalar multiplies the finished output. This is FlashAttention-2
(Dao, arXiv 2307.08691, section 3.1) if the scalar is 1 / sum(exp(x - max(x))).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from gensor_gym.chains.chain import Chain
from gensor_gym.dataflow.expressions import Call, Constant, Expression, Operand, operands
from gensor_gym.gir.nest import Cell, RowNest
from gensor_gym.gir.online import shifted_power

_ONE, _ZERO = Constant(1.0), Constant(0.0)


@dataclass(frozen=True)
class Running:
    """Weights that can be computed with a running maximum: exp(x - max(x)) times a scalar of the row, as in softmax."""

    power: str
    """Name of the value exp(x - max(x))."""
    of: str
    """Name of the value x."""
    top: str
    """Name of the value max(x)."""
    sums: tuple[str, ...]
    """Names of the sums of exp(x - max(x)) that `factor` needs."""
    factor: Expression
    """The scalar of the row by which exp(x - max(x)) is multiplied: weights = power * factor."""


@dataclass(frozen=True)
class Stream:
    """The passes over tiles of keys in which a chain's row nest turns scores into weights.

    The last pass computes the weights; without a nest it is the only one.
    """

    nest: RowNest | None
    weights: str
    running: Running | None
    passes: int

    @classmethod
    def of(cls, chain: Chain) -> Stream:
        """Plan the passes over tiles of keys for a chain, with a running maximum if its weights allow one."""
        nest = chain.middle
        if nest is None:
            return cls(None, chain.scores, None, 1)
        weights = nest.stores[0][0]
        running = next(filter(None, (_running(nest, cell, weights) for cell in nest.cells)), None)
        last = nest.cell[running.of if running else weights].stage
        return cls(nest, weights, running, last + 1)

    def reductions(self, place: int) -> tuple[Cell, ...]:
        """Return the reductions that are complete after pass `place` over the keys, except those of the running maximum."""
        return tuple(cell for cell in self._needed if cell.is_reduction and cell.stage == place + 1)

    def wide(self, place: int) -> tuple[Cell, ...]:
        """Return the values with an element for every score that pass `place` over the keys computes, in order."""
        if self.nest is None:
            return ()
        ends = [source for cell in self.reductions(place) for source in cell.sources]
        if place == self.passes - 1:
            ends.append(self.running.of if self.running else self.weights)
        found = _behind(self.nest, ends, lambda cell: cell.wide)
        return tuple(cell for cell in self.nest.cells if cell.name in found and cell.wide)

    def numbers(self, place: int) -> tuple[Cell, ...]:
        """Return the values with one number per row that are computed after pass `place` over the keys, in order.

        A `place` of -1 means before the first pass.
        """
        last = place == self.passes - 1
        return tuple(
            cell for cell in self._needed
            if not cell.wide and not cell.is_reduction and (cell.stage == place + 1 or (last and cell.stage > place))
        )  # fmt: skip

    @cached_property
    def _needed(self) -> tuple[Cell, ...]:
        """Values that the weights depend on, in order, except the maximum and the sums that the running maximum replaces."""
        if self.nest is None:
            return ()
        ends, own = [self.weights], set[str]()
        if self.running is not None:
            ends, own = [self.running.of, *operands(self.running.factor)], {self.running.top, *self.running.sums}
        found = _behind(self.nest, [end for end in ends if end not in own], lambda cell: True, own)
        return tuple(cell for cell in self.nest.cells if cell.name in found)


def _behind(nest: RowNest, ends: Iterable[str], follows: Callable[[Cell], bool], known: Iterable[str] = ()) -> set[str]:
    """Return the names of the values `ends` and of all values that they depend on, except those in `known`.

    A value's sources are traced only if `follows` is true for the value.
    """
    found, waiting, out = set[str](), list(ends), set(known)
    while waiting:
        name = waiting.pop()
        if name not in found and name not in out:
            found.add(name)
            waiting += nest.cell[name].sources if follows(nest.cell[name]) else ()
    return found


def _running(nest: RowNest, power: Cell, weights: str) -> Running | None:
    """Describe the weights as multiples of the exponential `power`, for a running maximum.

    Return None unless `power` is exp(x - max(x)) and all other reductions are complete in an earlier pass.
    """
    shifted, factor = shifted_power(nest, power.name), _factor(nest, Operand(weights), power.name)
    if shifted is None or factor is None:
        return None
    of, top = shifted
    sums = tuple(cell.name for cell in nest.cells if cell.made == "sum" and cell.sources == (power.name,))
    used = _behind(nest, operands(factor), lambda cell: cell.name not in (top, *sums))
    late = nest.cell[of].stage
    if any(nest.cell[name].stage > late and nest.cell[name].is_reduction for name in used - {top, *sums}):
        return None
    return Running(power.name, of, top, tuple(name for name in sums if name in used), factor)


def _factor(nest: RowNest, part: Expression, power: str) -> Expression | None:
    """Return the scalar of the row by which `power` is multiplied in the expression `part`; None if there is no such scalar."""
    match part:
        case Operand(name) if name == power:
            return _ONE
        case Operand(name) if nest.cell[name].wide and isinstance(made := nest.cell[name].made, Operand | Call):
            return _factor(nest, made, power)
        case Call("multiply", (one, other)):
            one, other = (other, one) if _is_narrow(nest, one) else (one, other)
            return _times(_factor(nest, one, power), other) if _is_narrow(nest, other) else None
        case Call("divide", (one, other)) if _is_narrow(nest, other):
            found = _factor(nest, one, power)
            return None if found is None else Call("divide", (found, other))
        case Call("negative", (one,)):
            return _times(_factor(nest, one, power), Constant(-1.0))
        case Call("where", (condition, one, other)) if _is_narrow(nest, condition) and other == _ZERO:
            found = _factor(nest, one, power)
            return None if found is None else Call("where", (condition, found, _ZERO))
    return None


def _times(factor: Expression | None, other: Expression) -> Expression | None:
    if factor is None:
        return None
    return other if factor == _ONE else Call("multiply", (factor, other))


def _is_narrow(nest: RowNest, part: Expression) -> bool:
    return not any(nest.cell[name].wide for name in operands(part))
