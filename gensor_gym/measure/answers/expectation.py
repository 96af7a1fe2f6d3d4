"""Expected outputs of a kernel: random inputs, the float64 reference, and the error bound.

Error bound, per output element, with u the unit roundoff (eps / 2) of the accumulator and m the same operator evaluated on the
absolute values of its inputs (for a matrix product: sum of |a||b|):

    |out - ref| <= 16 u m + 2 u_out |ref|                              tf32: and 2 u_in min(m, 2 q)

The sum of n products with random signs, added in order, has an error of about 0.6 u m for any n: the partial sums grow
like the square root of their length (a random walk), and so do the n rounding errors. So 16 u m is about 25 standard deviations.
Yet it is far below the error that a dropped term, a tile written twice, or TF32 or half-precision arithmetic in a float32 kernel
causes in most elements; a worst-case bound (n u m) would accept these. A maximum is exact except for the rounding of the output.
GELU, which has a slope of up to 1.13 and a rounding of its own, doubles the first term.

tf32 rounds the inputs of a product to u_in = 2^-11, so that a product has an error of at most 2 u_in |a||b|, and a sum of at most
2 u_in m. The errors of a sum's products are independent: their standard deviation is 0.6 u_in q, where q is the root of the sum
of (a b)^2, the operator evaluated on the squares of its inputs. 4 u_in q is about 7 deviations. By chance not one element in a
billion exceeds it, but 40 elements in a hundred do if inputs were rounded to bfloat16. The bound of tf32x3 is float32's: its
three products omit less than 3 * 2^-22 |a||b| = 12 u |a||b| in the worst case, less than a tenth of that on average.

Tensor cores of Ada and Hopper add products of 8-bit floats with 13 bits of mantissa and cut off the rest (accumulators of 22
bits: arXiv 2411.10958, 2412.19437), so u is 2^-14 there. In units of 2 u m, sums of random signs then have an error of 0.08 (a
depth of 64) to 0.22 (32768) on average and of 2.9 at most among 65,536 (emulated; the bound is 8). A lost step of 32 products
shows in most elements, a single product of thousands in none. If all products have one sign, so have the errors: 7 percent at a
depth of 4096.

Winograd's algorithm also rounds terms that cancel in the exact sum, so its m is the algorithm evaluated on absolute values, its
matrices' included (`operators.kinds.winograd.magnitude`). That is about seven times the sum of absolute products, so the factor
is 4 instead of 16. In 300 draws of one channel, errors reached 0.18 of the bound.

`vdpbf16ps` replaces bfloat16 inputs and results below 2^-126 by zero. Draws contain no such inputs, and the bound's last term,
2^-126, covers such results.

Integers are exact, but a number that `quantize` rounds may differ by 1 if its float32 bound reaches across a tie. NaN never
passes: outputs are filled with NaN beforehand.

Operators of more than `FULL_FLOPS` are checked at the corners and `SAMPLES` random elements, computed from the operator's
accesses; all elements must have been written (no NaN left). A CPU uses this definition. A GPU computes the same on the device
(`device_draws.py`) and is checked against it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.measure.answers.draw import DRAWS, Draw, Expected, drawn_inputs
from gensor_gym.measure.answers.fused import fused_draws
from gensor_gym.measure.answers.sampled import Transform, evaluate_at, output_index, same, sample_points
from gensor_gym.operators.bodies import BODIES
from gensor_gym.operators.computation import Computation
from gensor_gym.operators.epilogue import QUANTIZE
from gensor_gym.operators.inputs import decode
from gensor_gym.operators.kinds.winograd import magnitude, magnitude_at
from gensor_gym.operators.types import OUTPUT, Operator

UNIT_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "int32": 0.0, "int8": 0.0}
ADDED_ROUNDOFF = {"float8_e4m3fn": 2.0**-14}
"""Operator's data type -> unit roundoff of sums on tensor cores, for types whose sums keep fewer bits than the accumulator's
type.
"""
INPUT_ROUNDOFF = {"tf32": 2.0**-11}
"""Operator's data type -> unit roundoff of the type to which a product's inputs are rounded."""
_SMALLEST = {"float32": 2.0**-126, "float16": 2.0**-24, "bfloat16": 2.0**-126, "int32": 0.0, "int8": 0.0}
FULL_FLOPS = 4e9
"""Largest number of operations for which the whole output gets a reference. A reference takes less than a second, and six are
computed: for three draws and their bounds.
"""
SAMPLES = 2048


@dataclass(frozen=True)
class BoundTerms:
    """Coefficients of the error bound: steep * (accumulated * m + rounded * min(m, 2 q)) + stored * |ref| + smallest.

    The module's docstring defines m, q and ref.
    """

    accumulated: float
    rounded: float
    steep: float
    stored: float
    smallest: float


def bound_terms(op: Operator) -> BoundTerms:
    """Return the coefficients of an operator's error bound, from its data type, its body and its epilogue."""
    exact = BODIES[op.body].exact and not op.epilogue
    computed = op.accumulator if op.output.dtype == OUTPUT[op.dtype] else "float32"
    gelu = op.function == "gelu" or any(stage.name == "gelu" for stage in op.epilogue)
    return BoundTerms(
        accumulated=(2.0 if exact else 4.0 if op.winograd else 16.0) * ADDED_ROUNDOFF.get(op.dtype, UNIT_ROUNDOFF[computed]),
        rounded=2.0 * INPUT_ROUNDOFF.get(op.dtype, 0.0),
        steep=2.0 if gelu else 1.0,
        stored=2.0 * UNIT_ROUNDOFF[op.output.dtype],
        smallest=_SMALLEST[op.output.dtype],
    )


def linear_part(op: Operator) -> Operator:
    """Return the operator without the functions in its epilogue, such as gelu.

    Evaluated on absolute inputs, it gives m of the bound.
    """
    padding = abs(op.pad_value) if op.body == "multiply_add" else op.pad_value
    return op.renamed(epilogue=tuple(stage for stage in op.epilogue if stage.access is not None), pad_value=padding)


Evaluate = Callable[[Operator, Transform], np.ndarray]
"""Function of (operator, transform) that computes outputs of the operator (all, or some elements) from float64 inputs, to which
`transform` is applied first.
"""


def bound_of(op: Operator, reference: np.ndarray, evaluate: Evaluate) -> np.ndarray:
    """Return the largest accepted |out - reference| of each element. The module's docstring has the formula.

    `evaluate` computes the operator for given inputs; the result has the reference's shape.
    """
    if op.epilogue and op.epilogue[-1].name == QUANTIZE:
        before = replace(op, epilogue=op.epilogue[:-1], write=replace(op.write, tensor=replace(op.output, dtype="float32")))
        value = evaluate(before, same)
        error = bound_of(before, value, evaluate)
        found: np.ndarray = np.rint(value + error) - np.rint(value - error)
        return found
    linear, terms = linear_part(op), bound_terms(op)
    magnitude = evaluate(linear, np.abs)
    error = terms.accumulated * magnitude
    if terms.rounded:
        error += terms.rounded * np.minimum(magnitude, 2.0 * np.sqrt(evaluate(linear, np.square)))
    return terms.steep * error + terms.stored * np.abs(reference) + terms.smallest


def error_bound(op: Operator, inputs: tuple[np.ndarray, ...], reference: np.ndarray) -> np.ndarray:
    """Return the largest accepted |out - reference| of every output element, float64 [output.shape]."""
    values = [decode(a, t.dtype).astype(np.float64) for a, t in zip(inputs, op.inputs, strict=True)]
    return bound_of(op, reference, lambda linear, transform: _evaluated(linear, values, transform))


def _evaluated(op: Operator, values: Sequence[np.ndarray], transform: Transform) -> np.ndarray:
    given = map(transform, values[: len(op.inputs)])
    return magnitude(op, *given) if op.winograd and transform is np.abs else op.reference(*given)


def make_draws(
    op: Computation, seed: int, full_flops: float = FULL_FLOPS, places: Sequence[int] = DRAWS
) -> tuple[Expected, ...]:
    """Draw random inputs of an operator or fused operator, and compute the reference outputs with their error bounds.

    `places` selects some of the three draws. The first two are checked before a kernel is timed, the first is timed, and the
    third is checked afterwards. An operator of more than `full_flops` operations has references of some elements only.
    """
    if isinstance(op, Dataflow):
        return fused_draws(op, seed, places)
    assert isinstance(op, Operator)
    return operator_draws(op, seed, full_flops, places)


def operator_draws(
    op: Operator, seed: int, full_flops: float = FULL_FLOPS, places: Sequence[int] = DRAWS
) -> tuple[Draw, ...]:
    """Draw random inputs of an operator and compute the reference outputs with their error bounds.

    `places` selects some of the three draws. Above `full_flops` operations only some elements have a reference.
    """
    return tuple(expected_of(op, inputs, rng, full_flops) for inputs, rng in drawn_inputs(op, seed, places))


def expected_of(
    op: Operator, inputs: tuple[np.ndarray, ...], rng: np.random.Generator, full_flops: float, samples: int = SAMPLES
) -> Draw:
    """Compute reference and error bound for given inputs; above `full_flops` operations only at `samples` random elements."""
    if op.flops > full_flops:
        return sampled_draw(op, inputs, rng, samples)
    reference = op.reference(*inputs)
    return Draw(inputs, reference, error_bound(op, inputs, reference))


def sampled_draw(op: Operator, inputs: tuple[np.ndarray, ...], rng: np.random.Generator, samples: int) -> Draw:
    """Compute reference and error bound for given inputs, only at the corners of the output and at `samples` random elements."""
    points = sample_points(op, samples, rng)
    reference = evaluate_at(op, inputs, points, same)
    body = magnitude_at if op.winograd else None
    bound = bound_of(op, reference, lambda linear, transform: evaluate_at(linear, inputs, points, transform, body))
    return Draw(inputs, reference, bound, output_index(op, points))


Draws = Callable[..., tuple[Expected, ...]]
"""Function of (operator, seed) that draws inputs and computes expected outputs: all three draws, or only those at `places`."""
HARD = 1
"""Index of the draw (random inputs with expected outputs) that shows the most faults of fused operators; see `answers.fused`."""


class ExpectationCache:
    """Cache of random inputs and expected outputs ("draws") of recently used operators.

    Beyond `limit` bytes it drops the oldest draws.
    """

    def __init__(self, make: Draws = make_draws, limit: int = 1 << 30) -> None:
        """Make an empty cache of at most `limit` bytes; `make` makes an operator's draws.

        The draws of the operator used last are always kept.
        """
        self._make = make
        self._limit = limit
        self._draws: OrderedDict[tuple[Computation, int], tuple[Expected, ...]] = OrderedDict()

    def get(self, op: Computation, seed: int) -> tuple[Expected, ...]:
        """Return the three draws (inputs with expected outputs) of an operator for a seed, and make them at the first request."""
        key = (op, seed)
        if key not in self._draws:
            self._draws[key] = self._make(op, seed)
            while len(self._draws) > 1 and sum(d.nbytes for draws in self._draws.values() for d in draws) > self._limit:
                self._draws.popitem(last=False)
        self._draws.move_to_end(key)
        return self._draws[key]

    def hard(self, op: Computation, seed: int) -> Expected:
        """Return the second (`HARD`) of an operator's three draws (inputs with expected outputs), which shows the most faults.

        A draw that is made for this call is not added to the cache.
        """
        return self.get(op, seed)[HARD] if (op, seed) in self else self._make(op, seed, places=(HARD,))[0]

    def __contains__(self, key: tuple[Computation, int]) -> bool:
        return key in self._draws
