"""What a kernel should compute: random draws, their float64 reference, and how far an answer may be off.

Error bound, per output element, with u the unit roundoff (eps / 2) of the accumulator and m the same operator evaluated
on the absolute values of its inputs (for a matrix product: sum of |a||b|):

    |out - ref| <= 16 u m + 2 u_out |ref|

Summing n products of random signs in sequence errs by about 0.5 u m (n roundings of partial sums that grow like the
square root of their length: a random walk), whatever n is, so 16 u m is some thirty deviations, and stays far below the
error of a dropped term, of a tile written twice, or of TF32 or half-precision arithmetic in a float32 kernel. A
worst-case bound (n u m) would let those pass. A maximum is exact but for the rounding of the output; GELU, of slope
1.13 and with a rounding of its own, doubles the term. Integers are exact. NaN never passes: outputs are filled with NaN beforehand.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from gensor_gym.operators.inputs import from_bfloat16, random_inputs
from gensor_gym.operators.types import Operator

ARRAY_DTYPE = {"float32": "float32", "float16": "float16", "bfloat16": "uint16", "int8": "int8", "int32": "int32"}
"""NumPy dtype that holds each tensor dtype; bfloat16 travels as its bits."""

UNIT_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "int32": 0.0, "int8": 0.0}
_SMALLEST = {"float32": 2.0**-126, "float16": 2.0**-24, "bfloat16": 2.0**-126, "int32": 0.0, "int8": 0.0}
_DRAWS = 3


def decode(array: np.ndarray, dtype: str) -> np.ndarray:
    """The values of an array as kernels hold it: bfloat16 bits become float32, all else stays."""
    return from_bfloat16(array) if dtype == "bfloat16" and array.dtype == np.uint16 else array


def error_bound(op: Operator, inputs: tuple[np.ndarray, ...], reference: np.ndarray) -> np.ndarray:
    """Largest accepted |out - reference| of every output element, float64 [output.shape]; see the module."""
    tensors = op.inputs
    magnitudes = tuple(np.abs(decode(a, t.dtype).astype(np.float64)) for a, t in zip(inputs, tensors, strict=True))
    linear = op.renamed(epilogue=tuple(stage for stage in op.epilogue if stage.access is not None))
    factor = 2.0 if op.body == "max" and not op.epilogue else 16.0
    factor *= 2.0 if op.function == "gelu" or any(stage.name == "gelu" for stage in op.epilogue) else 1.0
    accumulated = factor * UNIT_ROUNDOFF[op.accumulator] * linear.reference(*magnitudes)
    return accumulated + 2.0 * UNIT_ROUNDOFF[op.output.dtype] * np.abs(reference) + _SMALLEST[op.output.dtype]


@dataclass(frozen=True)
class Draw:
    """One set of random inputs with the reference output and the accepted error, both float64 [output.shape]."""

    inputs: tuple[np.ndarray, ...]
    reference: np.ndarray
    bound: np.ndarray

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return sum(a.nbytes for a in (*self.inputs, self.reference, self.bound))

    def fault(self, output: np.ndarray) -> str:
        """Empty when every element is within its bound, else which is not, in words. `output` is decoded."""
        with np.errstate(invalid="ignore", over="ignore"):
            wrong = ~(np.abs(output.astype(np.float64) - self.reference) <= self.bound)
        count = int(np.count_nonzero(wrong))
        if count == 0:
            return ""
        where = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
        values = f"{output[where]!r} for {self.reference[where]:.9g}, accepted error {self.bound[where]:.3g}"
        return f"{count} of {wrong.size} elements wrong; first at {where}: {values}"


def make_draws(op: Operator, seed: int) -> tuple[Draw, ...]:
    """Three independent draws: two are checked before timing (the first is timed), the third after."""
    draws = []
    for child in np.random.default_rng(seed).spawn(_DRAWS):
        inputs = random_inputs(op, child)
        reference = op.reference(*inputs)
        draws.append(Draw(inputs, reference, error_bound(op, inputs, reference)))
    return tuple(draws)


class ExpectationCache:
    """Draws of the operators used lately, computed once each; the oldest go when `limit` bytes are passed."""

    def __init__(self, limit: int = 1 << 30) -> None:
        """`limit` in bytes; the operator in use is always kept."""
        self._limit = limit
        self._draws: OrderedDict[tuple[Operator, int], tuple[Draw, ...]] = OrderedDict()

    def get(self, op: Operator, seed: int) -> tuple[Draw, ...]:
        """The three draws of an operator for a seed."""
        key = (op, seed)
        if key not in self._draws:
            self._draws[key] = make_draws(op, seed)
            while len(self._draws) > 1 and sum(d.nbytes for draws in self._draws.values() for d in draws) > self._limit:
                self._draws.popitem(last=False)
        self._draws.move_to_end(key)
        return self._draws[key]

    def __contains__(self, key: tuple[Operator, int]) -> bool:
        """Whether an operator's draws are at hand."""
        return key in self._draws
