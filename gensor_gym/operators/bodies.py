"""Bodies of operators (the computation at a point of the loops) and reductions (how points are combined), in one table.

References, error bounds, generators, pictures and models read it. A new body or reduction is an entry here. Terms are plain
arithmetic, written alike in C, CUDA and C's vectors.
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
    """Name in generated text, as `maximum_8(a, b)`; `fold_maximum_8` folds lanes.

    CUDA's `fmaxf` is separate, because it drops a NaN.
    """
    numpy: np.ufunc
    torch: str
    """The function of torch that reduces so."""
    identity: float
    """Neutral element, the start of accumulators: 0 or an infinity, for integers the end of the range."""
    infix: str = ""
    """The operator of C; without one it is a choice, exact in any order."""
    order: str = ""
    """For a choice: the comparison by which its first argument wins, and a word for it."""
    word: str = ""

    def joined(self, a: str, b: str, width: int | str) -> str:
        """C text that combines two vectors of `width` lanes."""
        return f"{a} {self.infix} {b}" if self.infix else f"{self.name}_{width}({a}, {b})"

    def taken(self, target: str, term: str, function: str) -> str:
        """C text of the statement that adds a term to a variable; `function` is called for a choice."""
        return f"{target} {self.infix}= {term};" if self.infix else f"{target} = {function}({target}, {term});"


ADD = Reduction("add", np.add, "sum", 0.0, infix="+")
REDUCTIONS = {"add": ADD, "max": Reduction("maximum", np.maximum, "amax", -math.inf, order=">", word="larger")}
"""Reductions by name."""


@dataclass(frozen=True)
class Body:
    """Computation at a point: `term` of the reads, in C and in NumPy, and the reduction of terms.

    At missing points every read gives the identity of the reduction, whose term must be the identity again.
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
        """Whether one read outside makes the whole term the identity, for any other reads."""
        return self.term in ("{0}", "{0} * {1}")


BODIES = {
    "multiply_add": Body("{0} * {1}", np.multiply, 2),
    "sum": Body("{0}", np.asarray, 1),
    "max": Body("{0}", np.asarray, 1, REDUCTIONS["max"]),
    "map": Body("", np.asarray, 1),
}
"""Bodies by name. A map has no term: its operator names a function. Tables of tasks store indices here, so append new entries."""
OBSERVED = ("multiply_add", "sum", "max", "map")
"""Bodies with a fixed index in observations and in features of learned models; others have none."""


def limited(value: float, dtype: str) -> float:
    """A number, or for int8 the nearest one that it holds."""
    return min(max(value, -128.0), 127.0) if dtype == "int8" else value
