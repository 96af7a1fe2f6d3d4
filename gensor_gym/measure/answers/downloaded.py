"""Draws on the host that download a device's output to compare it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gensor_gym.measure.answers.draw import Expected


@dataclass(frozen=True)
class Downloaded:
    """A draw on the host for outputs on a device. It implements `draw.Expected`.

    `download` copies an array to the host. `values` downloads and decodes an output, or a list of several outputs.
    """

    draw: Expected
    download: Callable[[Any], np.ndarray]
    values: Callable[[Any], Any]

    @property
    def inputs(self) -> tuple[np.ndarray, ...]:
        """Input arrays, on the host."""
        return self.draw.inputs

    @property
    def nbytes(self) -> int:
        """Bytes of host memory in use."""
        return self.draw.nbytes

    def changed(self, arrays: Sequence[Any]) -> str:
        """Message about a modified input; empty if there is none."""
        return self.draw.changed([self.download(array) for array in arrays])

    def fault(self, output: Any) -> str:
        """Message about wrong elements; empty if all are right. `output` has the kernel's storage format."""
        return self.draw.fault(self.values(output))

    def distance(self, output: Any) -> tuple[float, float]:
        """(||output - reference||, ||reference||). `output` has the kernel's storage format."""
        return self.draw.distance(self.values(output))
