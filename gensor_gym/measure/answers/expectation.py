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
billion passes by chance; where inputs were rounded to bfloat16, 40 elements of a hundred do. The bound of tf32x3 is
float32's: what its three products leave out is below 3 * 2^-22 |a||b| = 12 u |a||b| in the worst case, less than a tenth
of that in the mean.

Integers are exact. NaN never passes: outputs are filled with NaN beforehand.

Operators of more than `FULL_FLOPS` are checked at `SAMPLES` random elements, the corners among them, computed from the
operator's accesses; all elements must have been written (no NaN left). This is what a CPU uses, and the definition: a GPU
computes the same on the device (`device_draws.py`) and is checked against it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.measure.answers.sampled import Transform, evaluate_at, output_index, same, sample_points
from gensor_gym.operators.bodies import BODIES
from gensor_gym.operators.computation import Computation
from gensor_gym.operators.inputs import decode, random_inputs
from gensor_gym.operators.types import Operator

UNIT_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "int32": 0.0, "int8": 0.0}
INPUT_ROUNDOFF = {"tf32": 2.0**-11}
"""Unit roundoff of the numbers that a product's inputs are rounded to, by the operator's data type."""
_SMALLEST = {"float32": 2.0**-126, "float16": 2.0**-24, "bfloat16": 2.0**-126, "int32": 0.0, "int8": 0.0}
_DRAWS = 3
FULL_FLOPS = 4e9
"""A fraction of a second in float64, six times over for draws and bounds: more is not computed whole."""
SAMPLES = 2048
_THREADED = 1 << 20
"""Elements from which the draws are made by a thread each: the generator lets others run, and takes 10 ns an element."""


@dataclass(frozen=True)
class BoundTerms:
    """Factors of the error bound: steep (accumulated m + rounded min(m, 2 q)) + stored |ref| + smallest; see the module."""

    accumulated: float
    rounded: float
    steep: float
    stored: float
    smallest: float


def bound_terms(op: Operator) -> BoundTerms:
    """The factors for an operator."""
    exact = BODIES[op.body].exact and not op.epilogue
    gelu = op.function == "gelu" or any(stage.name == "gelu" for stage in op.epilogue)
    return BoundTerms(
        accumulated=(2.0 if exact else 16.0) * UNIT_ROUNDOFF[op.accumulator],
        rounded=2.0 * INPUT_ROUNDOFF.get(op.dtype, 0.0),
        steep=2.0 if gelu else 1.0,
        stored=2.0 * UNIT_ROUNDOFF[op.output.dtype],
        smallest=_SMALLEST[op.output.dtype],
    )


def linear_part(op: Operator) -> Operator:
    """The operator without the functions in its epilogue: what its magnitude is evaluated with."""
    return op.renamed(epilogue=tuple(stage for stage in op.epilogue if stage.access is not None))


Evaluate = Callable[[Operator, Transform], np.ndarray]
"""An operator's output for inputs whose float64 values are transformed first: all of it, or some elements."""


def bound_of(op: Operator, reference: np.ndarray, evaluate: Evaluate) -> np.ndarray:
    """Largest accepted |out - reference|, shaped as the reference; see the module."""
    linear, terms = linear_part(op), bound_terms(op)
    magnitude = evaluate(linear, np.abs)
    error = terms.accumulated * magnitude
    if terms.rounded:
        error += terms.rounded * np.minimum(magnitude, 2.0 * np.sqrt(evaluate(linear, np.square)))
    return terms.steep * error + terms.stored * np.abs(reference) + terms.smallest


def error_bound(op: Operator, inputs: tuple[np.ndarray, ...], reference: np.ndarray) -> np.ndarray:
    """Largest accepted |out - reference| of every output element, float64 [output.shape]."""
    values = [decode(a, t.dtype).astype(np.float64) for a, t in zip(inputs, op.inputs, strict=True)]
    return bound_of(op, reference, lambda linear, transform: linear.reference(*map(transform, values)))


class Expected(Protocol):
    """What an operator should give for one set of inputs, wherever the arrays are."""

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The arrays that a kernel gets."""

    @property
    def nbytes(self) -> int:
        """Memory held."""

    def changed(self, arrays: Sequence[Any]) -> str:
        """Which of the arrays that were such inputs is none any more, in words; empty when all are."""

    def fault(self, output: Any) -> str:
        """Empty when every element of the output is within its bound, else which is not, in words."""

    def distance(self, output: Any) -> tuple[float, float]:
        """||output - reference|| and ||reference||, where the reference is known."""


def changed_words(number: int) -> str:
    """What is said of an input that a kernel wrote to."""
    return f"input {number} was modified"


def unwritten_words(missing: int, size: int) -> str:
    """What is said of an output that is known at some elements, when NaN is left anywhere."""
    return f"{missing} of {size} elements are NaN"


def wrong_words(count: int, size: int, place: Sequence[Any], value: Any, reference: float, bound: float) -> str:
    """What is said of wrong elements, of which the first is at a place."""
    values = f"{value!r} for {reference:.9g}, accepted error {bound:.3g}"
    return f"{count} of {size} elements wrong; first at {tuple(map(int, place))}: {values}"


@dataclass(frozen=True)
class Draw:
    """One set of random inputs with the reference output and the accepted error, both float64, on the host.

    Shaped as the output where `index` is None, else [S], for the flat output positions `index` [S]. See `Expected`.
    """

    inputs: tuple[np.ndarray, ...]
    reference: np.ndarray
    bound: np.ndarray
    index: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return sum(a.nbytes for a in (*self.inputs, self.reference, self.bound))

    def changed(self, arrays: Sequence[np.ndarray]) -> str:
        """See `Expected`."""
        for i, (array, sent) in enumerate(zip(arrays, self.inputs, strict=True)):
            if not np.array_equal(array, sent):
                return changed_words(i)
        return ""

    def fault(self, output: np.ndarray) -> str:
        """See `Expected`. `output` is decoded."""
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
        """See `Expected`. `output` is decoded."""
        values = output.reshape(-1)[self.index] if self.index is not None else output
        error = np.linalg.norm((values.astype(np.float64) - self.reference).ravel())
        return float(error), float(np.linalg.norm(self.reference.ravel()))


def drawn_inputs(op: Computation, seed: int) -> list[tuple[tuple[np.ndarray, ...], np.random.Generator]]:
    """The inputs of three independent draws, each with its generator as it stands after them."""
    children = np.random.default_rng(seed).spawn(_DRAWS)
    if sum(tensor.size for tensor in op.inputs) < _THREADED:
        return [(random_inputs(op, child), child) for child in children]
    with ThreadPoolExecutor(_DRAWS) as threads:
        return list(zip(threads.map(lambda child: random_inputs(op, child), children), children, strict=True))


def make_draws(op: Computation, seed: int, full_flops: float = FULL_FLOPS) -> tuple[Expected, ...]:
    """Three independent draws: two are checked before timing (the first is timed), the third after."""
    if isinstance(op, Dataflow):
        from gensor_gym.measure.answers.fused import fused_draws

        return fused_draws(op, seed)
    assert isinstance(op, Operator)
    return operator_draws(op, seed, full_flops)


def operator_draws(op: Operator, seed: int, full_flops: float = FULL_FLOPS) -> tuple[Draw, ...]:
    """The draws of one loop nest."""
    draws = []
    for inputs, rng in drawn_inputs(op, seed):
        if op.flops <= full_flops:
            reference = op.reference(*inputs)
            draws.append(Draw(inputs, reference, error_bound(op, inputs, reference)))
        else:
            draws.append(sampled_draw(op, inputs, rng, SAMPLES))
    return tuple(draws)


def sampled_draw(op: Operator, inputs: tuple[np.ndarray, ...], rng: np.random.Generator, samples: int) -> Draw:
    """A draw whose reference is known at the corners and at some random elements only."""
    points = sample_points(op, samples, rng)
    reference = evaluate_at(op, inputs, points, same)
    bound = bound_of(op, reference, lambda linear, transform: evaluate_at(linear, inputs, points, transform))
    return Draw(inputs, reference, bound, output_index(op, points))


Draws = Callable[[Any, int], tuple[Expected, ...]]
"""Makes the three draws of an operator for a seed."""


class ExpectationCache:
    """Draws of the operators used lately, made once each; the oldest go when `limit` bytes are passed."""

    def __init__(self, make: Draws = make_draws, limit: int = 1 << 30) -> None:
        """`make` is the device's; `limit` in bytes. The operator in use is always kept."""
        self._make = make
        self._limit = limit
        self._draws: OrderedDict[tuple[Computation, int], tuple[Expected, ...]] = OrderedDict()

    def get(self, op: Computation, seed: int) -> tuple[Expected, ...]:
        """The three draws of an operator for a seed."""
        key = (op, seed)
        if key not in self._draws:
            self._draws[key] = self._make(op, seed)
            while len(self._draws) > 1 and sum(d.nbytes for draws in self._draws.values() for d in draws) > self._limit:
                self._draws.popitem(last=False)
        self._draws.move_to_end(key)
        return self._draws[key]

    def __contains__(self, key: tuple[Computation, int]) -> bool:
        """Whether an operator's draws are at hand."""
        return key in self._draws
