"""Expected outputs of a fused operator's kernel: random inputs, and the outputs of `dataflow.evaluate` with error bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from gensor_gym.dataflow.bounds import Bounded
from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.expressions import Call, walk
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Map, Node, Reduce
from gensor_gym.measure.answers.downloaded import Downloaded
from gensor_gym.measure.answers.draw import DRAWS, Draw, drawn_inputs, wrong_words
from gensor_gym.operators.inputs import decode
from gensor_gym.operators.types import Operator


@dataclass(frozen=True)
class FusedDraw:
    """One set of random inputs with the expected outputs and their error bounds. It implements `draw.Expected`."""

    inputs: tuple[np.ndarray, ...]
    outputs: tuple[Bounded, ...]

    @property
    def nbytes(self) -> int:
        """Return the bytes of host memory that inputs, reference outputs and error bounds take."""
        parts = (array for output in self.outputs for array in (output.value, output.error))
        return sum(array.nbytes for array in (*self.inputs, *parts))

    def changed(self, arrays: Sequence[Any]) -> str:
        """Check whether a kernel modified its inputs, the `arrays`. Return a message that names one; empty if it did not."""
        return Draw(self.inputs, np.empty(0), np.empty(0)).changed(arrays)

    def fault(self, output: Any) -> str:
        """Compare an output with the reference. Return a message about wrong elements; empty if all are right.

        `output` is an array, or a sequence for several outputs. Infinities and NaN must match exactly.
        """
        given = self._read(output)
        for number, (array, expected) in enumerate(zip(given, self.outputs, strict=True)):
            wrong = array != expected.value if expected.value.dtype.kind == "i" else _wrong(array, expected)
            if count := int(np.count_nonzero(wrong)):
                place = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
                words = wrong_words(count, wrong.size, place, array[place], expected.value[place], expected.error[place])
                return words if len(given) == 1 else f"output {number}: {words}"
        return ""

    def distance(self, output: Any) -> tuple[float, float]:
        """Return (||output - reference||, ||reference||), 2-norms over all elements of all outputs."""
        given = self._read(output)
        parts = [(array - e.value, e.value) for array, e in zip(given, self.outputs, strict=True)]
        norms = [(np.linalg.norm(error.ravel()), np.linalg.norm(value.ravel())) for error, value in parts]
        return float(np.hypot.reduce([a for a, _ in norms])), float(np.hypot.reduce([b for _, b in norms]))


    def _read(self, output: Any) -> list[np.ndarray]:
        """Return the outputs as arrays of numbers: bfloat16, which is stored as unsigned bits, becomes float32."""
        return [decode(array, "bfloat16") for array in ([output] if len(self.outputs) == 1 else output)]


def _wrong(array: np.ndarray, expected: Bounded) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(array.astype(np.float64) - expected.value) <= expected.error
        same = (array == expected.value) | (np.isnan(array) & np.isnan(expected.value))
    return ~(near | same | np.isinf(expected.error))


def downloaded_fused(draw: FusedDraw, download: Callable[[Any], np.ndarray]) -> Downloaded:
    """Wrap a fused operator's draw (inputs with expected outputs) that compares a device's outputs after downloading them."""
    several = len(draw.outputs) > 1
    return Downloaded(draw, download, lambda output: [download(one) for one in output] if several else download(output))


MOST_ELEMENTS, MOST_STEPS = 3 << 25, 5 << 27
"""Largest operator that is verified: number of elements of one value, and number of evaluations of scalar functions in total.

An element takes up to 145 bytes, an evaluation 90 ns (Intel Xeon). Larger operators would exceed a worker's five minutes for
references, or the memory of most machines.
"""
_LONG = 1 << 14
"""Number of terms from which a sum's error bound is so loose that a missing term could pass."""
_THREADED = 1 << 22
"""Number of elements of all values from which the three draws are computed in parallel, which takes a third of the time and three
times the memory.
"""
_SCALES = np.array([64.0, 0.0, 1.0], np.float32)
"""Factors by which the rows of the second draw's inputs are multiplied in turn. 64 makes exponentials overflow, 0 makes all
elements equal, 1 changes nothing.
"""


def fused_draws(graph: Dataflow, seed: int, places: Sequence[int] = DRAWS) -> tuple[FusedDraw, ...]:
    """Draw random inputs of a fused operator and compute the expected outputs with their error bounds.

    `places` selects some of the three draws. The first two are checked before a kernel is timed, the first is timed, and the
    third is checked afterwards. The second has rows of extreme magnitudes: it shows faults that standard normal numbers hide,
    such as a maximum that is not subtracted or a missing eps. The others have standard normal numbers, except that with long sums
    the third has whole numbers, which are added without rounding, so that any missing element shows.
    """
    plain = [value.constant or value.dtype != "float32" or value.name in graph.id_limits for value in graph.inputs]
    changes: dict[int, Callable[[np.ndarray], np.ndarray]] = {1: _hard}
    if _longest_sum(graph) >= _LONG:
        changes[2] = np.rint
    given = [
        inputs if place not in changes else tuple(
            array if is_plain else changes[place](array) for is_plain, array in zip(plain, inputs, strict=True)
        )
        for place, (inputs, _) in zip(places, drawn_inputs(graph, seed, places), strict=True)
    ]  # fmt: skip
    if sum(value.size for value in graph.values.values()) < _THREADED:
        return tuple(FusedDraw(inputs, evaluate(graph, inputs)) for inputs in given)
    with ThreadPoolExecutor(len(given)) as threads:
        return tuple(threads.map(lambda inputs: FusedDraw(inputs, evaluate(graph, inputs)), given))


def check_size(graph: Operator | Dataflow) -> None:
    """Raise ValueError if verifying a fused operator would take too much time or memory.

    Any `Operator` passes, because some elements of a large one are enough.
    """
    if isinstance(graph, Operator):
        return
    largest = max(graph.values.values(), key=lambda value: value.size)
    if largest.size > MOST_ELEMENTS:
        raise ValueError(f"{graph}: {largest.name} has {largest.size} elements, expected at most {MOST_ELEMENTS} to be verified")
    steps = sum(_steps(graph, name, node) for name, node in graph.nodes)
    if steps > MOST_STEPS:
        raise ValueError(f"{graph}: {steps} scalar functions of elements, expected at most {MOST_STEPS} to be verified")


def _steps(graph: Dataflow, name: str, node: Node) -> int:
    """Count the scalar functions evaluated for a node: one per call and element of a map, one per element read by a reduction."""
    if isinstance(node, Map):
        return graph.values[name].size * sum(isinstance(part, Call) for part in walk(node.expression))
    return graph.values[node.source].size if isinstance(node, Reduce) else 0


def _longest_sum(graph: Dataflow) -> int:
    sums = ((name, node.source) for name, node in graph.nodes if isinstance(node, Reduce) and node.body == "sum")
    return max((graph.values[source].size // graph.values[name].size for name, source in sums), default=0)


def _hard(array: np.ndarray) -> np.ndarray:
    """Multiply the rows of an array (along its last axis) by `_SCALES` in turn. Return the product."""
    rows = array.reshape(-1, *(array.shape[-1:] or (1,)))
    return (rows * _SCALES[np.arange(len(rows)) % len(_SCALES), None]).reshape(array.shape)
