"""A draw: random inputs with the expected output of a kernel. Also the error messages for a wrong output."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gensor_gym.operators.computation import Computation
from gensor_gym.operators.inputs import random_inputs

DRAWS = (0, 1, 2)
"""Indices of a kernel's three draws (random inputs with expected outputs). The first two are checked before timing, the first is
timed, the last is checked afterwards.
"""
_THREADED = 1 << 20
"""Number of input elements from which on the draws are generated in parallel threads. NumPy's generator takes 10 ns per element
and releases the interpreter's lock.
"""


class Expected(Protocol):
    """Expected outputs of an operator for one set of random inputs (a draw), on the host or the device."""

    @property
    def inputs(self) -> tuple[Any, ...]:
        """Return the input arrays for the kernel."""

    @property
    def nbytes(self) -> int:
        """Return the bytes of memory that inputs, reference outputs and error bounds take."""

    def changed(self, arrays: Sequence[Any]) -> str:
        """Check whether a kernel modified its inputs, the `arrays`. Return a message that names one; empty if it did not."""

    def fault(self, output: Any) -> str:
        """Compare an output with the reference.

        Return a message about wrong elements; empty if each error is within its bound.
        """

    def distance(self, output: Any) -> tuple[float, float]:
        """Return (||output - reference||, ||reference||), 2-norms over the elements with a known reference."""


def changed_words(number: int) -> str:
    """Return the error message for the modified input with index `number`."""
    return f"input {number} was modified"


def unwritten_words(missing: int, size: int) -> str:
    """Return the error message for a kernel that left `missing` of `size` elements unwritten (they still hold their earlier NaN).

    The message is for outputs whose elements are compared with a reference only in part.
    """
    return f"{missing} of {size} elements are NaN"


def wrong_words(count: int, size: int, place: Sequence[Any], value: Any, reference: float, bound: float) -> str:
    """Return the error message for `count` wrong elements, with the position and value of the first."""
    values = f"{value!r} for {reference:.9g}, accepted error {bound:.3g}"
    return f"{count} of {size} elements wrong; first at {tuple(map(int, place))}: {values}"


@dataclass(frozen=True)
class Draw:
    """One set of random inputs with the reference output and the accepted error, both float64, on the host.

    It implements `Expected`. Reference and bound have the output's shape if `index` is None. Otherwise their shape is [S], for
    the flat output positions `index` [S].
    """

    inputs: tuple[np.ndarray, ...]
    reference: np.ndarray
    bound: np.ndarray
    index: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        """Return the bytes of host memory that inputs, reference outputs and error bounds take."""
        return sum(a.nbytes for a in (*self.inputs, self.reference, self.bound))

    def changed(self, arrays: Sequence[np.ndarray]) -> str:
        """Check whether a kernel modified its inputs, the `arrays`. Return a message that names one; empty if it did not."""
        for i, (array, sent) in enumerate(zip(arrays, self.inputs, strict=True)):
            if not np.array_equal(array, sent):
                return changed_words(i)
        return ""

    def fault(self, output: np.ndarray) -> str:
        """Compare a decoded output with the reference. Return a message about wrong elements; empty if all are right."""
        if self.index is not None:
            if missing := int(np.count_nonzero(np.isnan(output))):
                return unwritten_words(missing, output.size)
            output_shape, output = output.shape, output.reshape(-1)[self.index]
        with np.errstate(invalid="ignore", over="ignore"):
            wrong = ~(np.abs(output.astype(np.float64) - self.reference) <= self.bound)
        count = int(np.count_nonzero(wrong))
        if count == 0:
            return ""
        first = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
        where = first if self.index is None else np.unravel_index(int(self.index[first]), output_shape)
        return wrong_words(count, wrong.size, where, output[first], self.reference[first], self.bound[first])

    def distance(self, output: np.ndarray) -> tuple[float, float]:
        """Return (||output - reference||, ||reference||), 2-norms over the elements with a known reference.

        `output` is decoded.
        """
        values = output.reshape(-1)[self.index] if self.index is not None else output
        error = np.linalg.norm((values.astype(np.float64) - self.reference).ravel())
        return float(error), float(np.linalg.norm(self.reference.ravel()))


def drawn_inputs(
    op: Computation, seed: int, places: Sequence[int] = DRAWS
) -> list[tuple[tuple[np.ndarray, ...], np.random.Generator]]:
    """Draw random inputs of an operator for each index in `places`. Return pairs (inputs, random generator that drew them).

    Draws are independent of each other.
    """
    every = np.random.default_rng(seed).spawn(len(DRAWS))
    children = [every[place] for place in places]
    if sum(tensor.size for tensor in op.inputs) < _THREADED:
        return [(random_inputs(op, child), child) for child in children]
    with ThreadPoolExecutor(len(children)) as threads:
        return list(zip(threads.map(lambda child: random_inputs(op, child), children), children, strict=True))
