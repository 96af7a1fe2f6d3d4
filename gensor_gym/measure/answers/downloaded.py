"""Draws of the host for outputs of a device, which are downloaded for comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gensor_gym.measure.answers.draw import Expected


@dataclass(frozen=True)
class Downloaded:
    """An `Expected` of the host; `values` converts an output of the device, a list for several."""

    draw: Expected
    download: Callable[[Any], np.ndarray]
    values: Callable[[Any], Any]

    @property
    def inputs(self) -> tuple[np.ndarray, ...]:
        """Arrays on the host."""
        return self.draw.inputs

    @property
    def nbytes(self) -> int:
        """Host memory held."""
        return self.draw.nbytes

    def changed(self, arrays: Sequence[Any]) -> str:
        """See `Expected`."""
        return self.draw.changed([self.download(array) for array in arrays])

    def fault(self, output: Any) -> str:
        """See `Expected`. `output` is as kernels hold it."""
        return self.draw.fault(self.values(output))

    def distance(self, output: Any) -> tuple[float, float]:
        """See `Expected`. `output` is as kernels hold it."""
        return self.draw.distance(self.values(output))
