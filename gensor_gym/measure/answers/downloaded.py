"""Draws (random inputs with expected outputs) on the host: a device's output is downloaded to be compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gensor_gym.measure.answers.draw import Expected


@dataclass(frozen=True)
class Downloaded:
    """A draw (random inputs with the expected output) on the host, for outputs on a device. It implements `draw.Expected`.

    `download` copies an array to the host. `values` downloads and decodes an output, or a list of several outputs.
    """

    draw: Expected
    download: Callable[[Any], np.ndarray]
    values: Callable[[Any], Any]

    @property
    def inputs(self) -> tuple[np.ndarray, ...]:
        """Return the input arrays, on the host."""
        return self.draw.inputs

    @property
    def nbytes(self) -> int:
        """Return the bytes of host memory that inputs, reference outputs and error bounds take."""
        return self.draw.nbytes

    def changed(self, arrays: Sequence[Any]) -> str:
        """Check whether a kernel modified its inputs, the `arrays`. Return a message that names one; empty if it did not."""
        return self.draw.changed([self.download(array) for array in arrays])

    def fault(self, output: Any) -> str:
        """Compare an output with the reference. Return a message about wrong elements; empty if all are right.

        `output` has the kernel's storage format.
        """
        return self.draw.fault(self.values(output))

    def distance(self, output: Any) -> tuple[float, float]:
        """Return (||output - reference||, ||reference||), both 2-norms. `output` has the kernel's storage format."""
        return self.draw.distance(self.values(output))
