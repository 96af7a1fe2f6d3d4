"""Table of bodies (computations at a point of the loops) and of reductions (combinations of points).

References, error bounds, generators, pictures and models read the table. A new body or reduction is one more entry. Terms are
plain arithmetic, which has the same text in C, in CUDA and for vectors in C.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Reduction:
    """The combination of two partial results: by an operator of C, or by choosing the larger or smaller of both."""

    name: str
    """Name in generated text, such as `maximum_8(a, b)`; `fold_maximum_8` folds lanes. CUDA's `fmaxf` has another name, because
    it drops a NaN."""
    numpy: np.ufunc
    torch: str
    """Torch's name of the reduction."""
    identity: float
    """Neutral element, with which accumulators start: 0 or an infinity, for integers the end of the range."""
    infix: str = ""
    """The operator of C. Empty for a choice, which is exact in any order."""
    order: str = ""
    """Comparison of a choice: if true, the first argument is chosen. `word` is an adjective for the chosen argument."""
    word: str = ""

    def joined(self, a: str, b: str, width: int | str) -> str:
        """C text that combines two vectors of `width` lanes."""
        return f"{a} {self.infix} {b}" if self.infix else f"{self.name}_{width}({a}, {b})"

    def taken(self, target: str, term: str, function: str) -> str:
        """C statement that combines a term with the variable `target`. A choice calls `function`."""
        return f"{target} {self.infix}= {term};" if self.infix else f"{target} = {function}({target}, {term});"


ADD = Reduction("add", np.add, "sum", 0.0, infix="+")
REDUCTIONS = {"add": ADD, "max": Reduction("maximum", np.maximum, "amax", -math.inf, order=">", word="larger")}
"""Reductions by name."""


@dataclass(frozen=True)
class Body:
    """Computation at a point: a term of the reads, as C text (`term`) and in NumPy, and the reduction of terms.

    At points outside a tensor every read gives the identity of the reduction. The term of identities must be the identity.
    """

    term: str
    numpy: Callable[..., np.ndarray]
    flops: int
    """Number of operations per point. A multiply-add counts as two."""
    reduction: Reduction = ADD

    @property
    def plain(self) -> bool:
        """Whether the term is the value of a single read."""
        return self.term == "{0}"

    @property
    def exact(self) -> bool:
        """Whether the result is exact: neither the term nor the reduction rounds, in any order."""
        return self.plain and not self.reduction.infix

    @property
    def absorbs(self) -> bool:
        """Whether one read outside its tensor makes the whole term the identity, for any values of other reads."""
        return self.term in ("{0}", "{0} * {1}")


BODIES = {
    "multiply_add": Body("{0} * {1}", np.multiply, 2),
    "sum": Body("{0}", np.asarray, 1),
    "max": Body("{0}", np.asarray, 1, REDUCTIONS["max"]),
    "map": Body("", np.asarray, 1),
}
"""Bodies by name. A map has no term: its operator names a function. Tables of tasks store indices of bodies, so append new
bodies."""
OBSERVED = ("multiply_add", "sum", "max", "map")
"""Bodies with a fixed index in observations and in features of learned models. Other bodies have no index there."""


def limited(value: float, dtype: str) -> float:
    """The number itself, or for int8 the nearest number in -128..127."""
    return min(max(value, -128.0), 127.0) if dtype == "int8" else value
