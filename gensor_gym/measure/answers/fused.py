"""What a fused operator's kernel should compute: draws with the float64 outputs of `dataflow.evaluate` and their bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gensor_gym.dataflow.bounds import Bounded
from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.measure.answers.downloaded import Downloaded
from gensor_gym.measure.answers.draw import Draw, drawn_inputs, wrong_words


@dataclass(frozen=True)
class FusedDraw:
    """One set of random inputs with the bounded outputs. See `draw.Expected`."""

    inputs: tuple[np.ndarray, ...]
    outputs: tuple[Bounded, ...]

    @property
    def nbytes(self) -> int:
        """Memory held."""
        parts = (array for output in self.outputs for array in (output.value, output.error))
        return sum(array.nbytes for array in (*self.inputs, *parts))

    def changed(self, arrays: Sequence[Any]) -> str:
        """See `Expected`."""
        return Draw(self.inputs, np.empty(0), np.empty(0)).changed(arrays)

    def fault(self, output: Any) -> str:
        """See `Expected`. Of several outputs `output` is a sequence. What is infinite or no number must come out so."""
        given = [output] if len(self.outputs) == 1 else list(output)
        for number, (array, expected) in enumerate(zip(given, self.outputs, strict=True)):
            with np.errstate(invalid="ignore", over="ignore"):
                near = np.abs(array.astype(np.float64) - expected.value) <= expected.error
                same = (array == expected.value) | (np.isnan(array) & np.isnan(expected.value))
            wrong = ~(near | same | np.isinf(expected.error))
            if count := int(np.count_nonzero(wrong)):
                place = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
                words = wrong_words(count, wrong.size, place, array[place], expected.value[place], expected.error[place])
                return words if len(given) == 1 else f"output {number}: {words}"
        return ""

    def distance(self, output: Any) -> tuple[float, float]:
        """See `Expected`."""
        given = [output] if len(self.outputs) == 1 else list(output)
        parts = [(array - e.value, e.value) for array, e in zip(given, self.outputs, strict=True)]
        norms = [(np.linalg.norm(error.ravel()), np.linalg.norm(value.ravel())) for error, value in parts]
        return float(np.hypot.reduce([a for a, _ in norms])), float(np.hypot.reduce([b for _, b in norms]))


def downloaded_fused(draw: FusedDraw, download: Callable[[Any], np.ndarray]) -> Downloaded:
    """A draw for outputs of a device."""
    several = len(draw.outputs) > 1
    return Downloaded(draw, download, lambda output: [download(one) for one in output] if several else download(output))


_SCALES = np.array([64.0, 0.0, 1.0], np.float32)
"""Of the rows of the hard draw in turns: exponentials overflow, no spread is left, as drawn."""


def fused_draws(graph: Dataflow, seed: int) -> tuple[FusedDraw, ...]:
    """Three independent draws: two are checked before timing, the third after.

    The second is a hard one, for what does not show in standard normal numbers: a maximum that is not subtracted, an eps that
    is missing. The first, which is timed, and the third are plain.
    """
    first, second, third = (inputs for inputs, _ in drawn_inputs(graph, seed))
    plain = [value.constant or value.dtype != "float32" or value.name in graph.id_limits for value in graph.inputs]
    hard = tuple(array if is_plain else _hard(array) for is_plain, array in zip(plain, second, strict=True))
    return tuple(FusedDraw(inputs, evaluate(graph, inputs)) for inputs in (first, hard, third))


def _hard(array: np.ndarray) -> np.ndarray:
    """Rows along the last axis times `_SCALES` in turns."""
    rows = array.reshape(-1, *(array.shape[-1:] or (1,)))
    return (rows * _SCALES[np.arange(len(rows)) % len(_SCALES), None]).reshape(array.shape)
