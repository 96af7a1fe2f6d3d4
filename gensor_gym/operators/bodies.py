"""Table of bodies: what operators compute at each point of their loops, and how the results of points are reduced.

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
    """How two partial results of a reduction are combined: by an operator of C, or by choosing the larger or smaller one."""

    name: str
    """Name of the function that generated text calls, such as `maximum_8(a, b)`; `fold_maximum_8` combines the lanes of a vector.
    CUDA's `fmaxf` has another name, because it drops a NaN."""
    numpy: np.ufunc
    torch: str
    """Torch's name of the reduction."""
    identity: float
    """Number with which accumulators start and that changes no result: 0 or an infinity, for integers the end of the range."""
    infix: str = ""
    """The operator of C, such as `+`. Empty if the reduction chooses one of its arguments, which is exact in any order."""
    order: str = ""
    """Comparison in C by which a reduction chooses: if true, the first argument is chosen. `word` is an adjective for it."""
    word: str = ""

    def joined(self, a: str, b: str, width: int | str) -> str:
        """Return C text that combines two vectors `a` and `b` of `width` lanes."""
        return f"{a} {self.infix} {b}" if self.infix else f"{self.name}_{width}({a}, {b})"

    def taken(self, target: str, term: str, function: str) -> str:
        """Return the C statement that combines `term` into the variable `target`.

        A reduction that chooses the larger or smaller value calls `function`.
        """
        return f"{target} {self.infix}= {term};" if self.infix else f"{target} = {function}({target}, {term});"


ADD = Reduction("add", np.add, "sum", 0.0, infix="+")
REDUCTIONS = {"add": ADD, "max": Reduction("maximum", np.maximum, "amax", -math.inf, order=">", word="larger")}
"""Reductions by name."""


@dataclass(frozen=True)
class Body:
    """What an operator computes at each point of its loops: a term of the values read, and how terms are reduced.

    The term is given as C text and as a NumPy function. At points outside a tensor every access gives the identity of the
    reduction, and the term of identities must be the identity.
    """

    term: str
    numpy: Callable[..., np.ndarray]
    flops: int
    """Number of operations per point. A multiply-add counts as two."""
    reduction: Reduction = ADD

    @property
    def plain(self) -> bool:
        """Whether the term is just one of the values read."""
        return self.term == "{0}"

    @property
    def exact(self) -> bool:
        """Whether results are exact in any order of the reduction, because nothing is rounded."""
        return self.plain and not self.reduction.infix

    @property
    def absorbs(self) -> bool:
        """Whether the term is the reduction's identity if any access is outside its tensor."""
        return self.term in ("{0}", "{0} * {1}")


BODIES = {
    "multiply_add": Body("{0} * {1}", np.multiply, 2),
    "sum": Body("{0}", np.asarray, 1),
    "max": Body("{0}", np.asarray, 1, REDUCTIONS["max"]),
    "map": Body("", np.asarray, 1),
}
"""Bodies by name. The body `map` has no term, because each operator names a function. Tables of tasks store indices of bodies, so
append new bodies."""
OBSERVED = ("multiply_add", "sum", "max", "map")
"""Bodies that have a fixed index in observations and in features of learned models. Other bodies have no index there."""


def limited(value: float, dtype: str) -> float:
    """Return `value` itself, or for int8 the nearest number in -128..127."""
    return min(max(value, -128.0), 127.0) if dtype == "int8" else value
