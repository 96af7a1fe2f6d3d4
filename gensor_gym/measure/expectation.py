"""What a kernel should compute: random draws, their float64 reference, and how far an answer may be off.

Error bound, per output element, with u the unit roundoff (eps / 2) of the accumulator and m the same operator evaluated
on the absolute values of its inputs (for a matrix product: sum of |a||b|):

    |out - ref| <= 16 u m + 2 u_out |ref|                              tf32: and 2 u_in min(m, 2 q)

Summing n products of random signs in sequence errs by about 0.6 u m (n roundings of partial sums that grow like the
square root of their length: a random walk), whatever n is, so 16 u m is some 25 deviations, and stays far below what a
dropped term, a tile written twice, or TF32 or half-precision arithmetic in a float32 kernel does to most elements. A
worst-case bound (n u m) would let those pass. A maximum is exact but for the rounding of the output; GELU, of slope
1.13 and with a rounding of its own, doubles the term.

tf32 rounds the inputs of a product to u_in = 2^-11, so that a product errs by at most 2 u_in |a||b|, and a sum by at most
2 u_in m. The errors of the products of a sum are independent: their deviation is 0.6 u_in q with q the root of the sum
of (a b)^2, the operator evaluated on the squares of its inputs. 4 u_in q is near 7 deviations, which no element of a
billion passes by chance, and some of most outputs pass where inputs were rounded to bfloat16. The bound of tf32x3 is
float32's: what its three products leave out is below 3 * 2^-22 |a||b| = 12 u |a||b| in the worst case, less than a tenth
of that in the mean.

Integers are exact. NaN never passes: outputs are filled with NaN beforehand.

Operators of more than `FULL_FLOPS` are checked at `SAMPLES` random elements, the corners among them, computed from the
operator's accesses; all elements must have been written (no NaN left).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gensor_gym.measure.sampled import evaluate_at, output_index, sample_points
from gensor_gym.operators.inputs import from_bfloat16, random_inputs
from gensor_gym.operators.types import Operator

UNIT_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "int32": 0.0, "int8": 0.0}
INPUT_ROUNDOFF = {"tf32": 2.0**-11}
"""Unit roundoff of the numbers that a product's inputs are rounded to, by the operator's data type."""
_SMALLEST = {"float32": 2.0**-126, "float16": 2.0**-24, "bfloat16": 2.0**-126, "int32": 0.0, "int8": 0.0}
_DRAWS = 3
FULL_FLOPS = 4e9
"""A fraction of a second in float64, six times over for draws and bounds: more is not computed whole."""
SAMPLES = 2048


def decode(array: np.ndarray, dtype: str) -> np.ndarray:
    """The values of an array as kernels hold it: bfloat16 bits become float32, all else stays."""
    return from_bfloat16(array) if dtype == "bfloat16" and array.dtype == np.uint16 else array


def linear_part(op: Operator) -> Operator:
    """The operator without the functions in its epilogue: what its magnitude is evaluated with."""
    return op.renamed(epilogue=tuple(stage for stage in op.epilogue if stage.access is not None))


Evaluate = Callable[[Operator, Sequence[np.ndarray]], np.ndarray]
"""An operator's output for decoded inputs: all of it, or some elements."""


def bound_of(op: Operator, inputs: Sequence[np.ndarray], reference: np.ndarray, evaluate: Evaluate) -> np.ndarray:
    """Largest accepted |out - reference|, shaped as the reference, for decoded inputs; see the module."""
    linear, magnitudes = linear_part(op), [np.abs(array.astype(np.float64)) for array in inputs]
    magnitude = evaluate(linear, magnitudes)
    error = (2.0 if op.body == "max" and not op.epilogue else 16.0) * UNIT_ROUNDOFF[op.accumulator] * magnitude
    if op.dtype in INPUT_ROUNDOFF:
        spread = np.sqrt(evaluate(linear, [array * array for array in magnitudes]))
        error += 2.0 * INPUT_ROUNDOFF[op.dtype] * np.minimum(magnitude, 2.0 * spread)
    steep = 2.0 if op.function == "gelu" or any(stage.name == "gelu" for stage in op.epilogue) else 1.0
    return steep * error + 2.0 * UNIT_ROUNDOFF[op.output.dtype] * np.abs(reference) + _SMALLEST[op.output.dtype]


def error_bound(op: Operator, inputs: tuple[np.ndarray, ...], reference: np.ndarray) -> np.ndarray:
    """Largest accepted |out - reference| of every output element, float64 [output.shape]."""
    values = [decode(a, t.dtype) for a, t in zip(inputs, op.inputs, strict=True)]
    return bound_of(op, values, reference, lambda linear, arrays: linear.reference(*arrays))


@dataclass(frozen=True)
class Draw:
    """One set of random inputs with the reference output and the accepted error, both float64.

    Shaped as the output where `index` is None, else [S], for the flat output positions `index` [S].
    """

    inputs: tuple[np.ndarray, ...]
    reference: np.ndarray
    bound: np.ndarray
    index: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return sum(a.nbytes for a in (*self.inputs, self.reference, self.bound))

    def fault(self, output: np.ndarray) -> str:
        """Empty when every element is within its bound, else which is not, in words. `output` is decoded."""
        if self.index is not None:
            if missing := int(np.count_nonzero(np.isnan(output))):
                return f"{missing} of {output.size} elements are NaN"
            output_shape, output = output.shape, output.reshape(-1)[self.index]
        with np.errstate(invalid="ignore", over="ignore"):
            wrong = ~(np.abs(output.astype(np.float64) - self.reference) <= self.bound)
        count = int(np.count_nonzero(wrong))
        if count == 0:
            return ""
        first = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
        values = f"{output[first]!r} for {self.reference[first]:.9g}, accepted error {self.bound[first]:.3g}"
        where = first if self.index is None else np.unravel_index(int(self.index[first]), output_shape)
        return f"{count} of {wrong.size} elements wrong; first at {tuple(map(int, where))}: {values}"


def make_draws(op: Operator, seed: int, full_flops: float = FULL_FLOPS) -> tuple[Draw, ...]:
    """Three independent draws: two are checked before timing (the first is timed), the third after."""
    draws = []
    for child in np.random.default_rng(seed).spawn(_DRAWS):
        inputs = random_inputs(op, child)
        if op.flops <= full_flops:
            reference = op.reference(*inputs)
            draws.append(Draw(inputs, reference, error_bound(op, inputs, reference)))
        else:
            draws.append(_sampled_draw(op, inputs, child))
    return tuple(draws)


def _sampled_draw(op: Operator, inputs: tuple[np.ndarray, ...], rng: np.random.Generator) -> Draw:
    """A draw whose reference is known at some elements only."""
    points = sample_points(op, SAMPLES, rng)
    values = [decode(a, t.dtype) for a, t in zip(inputs, op.inputs, strict=True)]
    reference = evaluate_at(op, values, points)
    bound = bound_of(op, values, reference, lambda linear, arrays: evaluate_at(linear, arrays, points))
    return Draw(inputs, reference, bound, output_index(op, points))


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
