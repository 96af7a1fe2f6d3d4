"""What an operator does at a point of its loops, and how points are joined: the one table of both.

References, limits of errors, generators, pictures and models read it; a body is an entry here, and a way of joining points that
is new another. Terms are plain arithmetic, which C, CUDA and C's vectors write alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Reduction:
    """How two partial results become one: by an operator of C, or as the larger or smaller of both."""

    name: str
    """In generated text `maximum_8(a, b)`; lanes are folded by `fold_maximum_8`. CUDA has `fmaxf`, which alone drops a NaN."""
    numpy: np.ufunc
    torch: str
    """The function of torch that reduces so."""
    identity: float
    """What changes nothing: where accumulators begin. 0 or an infinity, which of an integer is its end."""
    infix: str = ""
    """The operator of C; without one it is a choice, exact in any order."""
    order: str = ""
    """Of a choice: the comparison that its first value wins by, and a word for it."""
    word: str = ""

    def joined(self, a: str, b: str, width: int | str) -> str:
        """C text of both, vectors of so many lanes."""
        return f"{a} {self.infix} {b}" if self.infix else f"{self.name}_{width}({a}, {b})"

    def taken(self, target: str, term: str, function: str) -> str:
        """C text of the statement by which a variable takes a term in; `function` calls a choice."""
        return f"{target} {self.infix}= {term};" if self.infix else f"{target} = {function}({target}, {term});"


ADD = Reduction("add", np.add, "sum", 0.0, infix="+")
REDUCTIONS = {"add": ADD, "max": Reduction("maximum", np.maximum, "amax", -math.inf, order=">", word="larger")}
"""By name."""


@dataclass(frozen=True)
class Body:
    """What is done at a point: `term` of the reads, in C and in NumPy, and how terms are joined.

    Where there is no point every read gives the identity of the reduction, whose term must be the identity again.
    """

    term: str
    numpy: Callable[..., np.ndarray]
    flops: int
    """Operations a point, as the field counts them."""
    reduction: Reduction = ADD

    @property
    def plain(self) -> bool:
        """Whether the term is the one read itself."""
        return self.term == "{0}"

    @property
    def exact(self) -> bool:
        """Whether no term and no order of joining rounds."""
        return self.plain and not self.reduction.infix

    @property
    def absorbs(self) -> bool:
        """Whether one read outside makes the whole term the identity, whatever the others are."""
        return self.term in ("{0}", "{0} * {1}")


BODIES = {
    "multiply_add": Body("{0} * {1}", np.multiply, 2),
    "sum": Body("{0}", np.asarray, 1),
    "max": Body("{0}", np.asarray, 1, REDUCTIONS["max"]),
    "map": Body("", np.asarray, 1),
}
"""By name. A map has no term: its operator names a function. Tables of tasks hold places here, so a new one comes last."""
OBSERVED = ("multiply_add", "sum", "max", "map")
"""Bodies that have a place in observations and in features of learned models, which must not move: others have none."""


def limited(value: float, dtype: str) -> float:
    """A number, or for int8 the nearest one that it holds."""
    return min(max(value, -128.0), 127.0) if dtype == "int8" else value
