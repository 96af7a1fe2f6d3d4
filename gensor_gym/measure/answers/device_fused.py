"""Expected outputs of fused operators: the host computes the references, the device stores them and compares outputs with them.

Downloading a large output and comparing it with NumPy takes seconds, and a trial compares six outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.measure.answers.downloaded import Downloaded
from gensor_gym.measure.answers.draw import changed_words
from gensor_gym.measure.answers.fused import FusedDraw, downloaded_fused
from gensor_gym.measure.answers.reference_kernels import Array, ReferenceKernels
from gensor_gym.measure.answers.reference_plan import CODES
from gensor_gym.measure.workers.trial import DeviceLost


@dataclass(frozen=True)
class DeviceFused:
    """A `FusedDraw` whose arrays are on the device. It implements `draw.Expected`.

    The device counts the elements outside the bound, and also every infinity and NaN, even if expected. If it counts any, the
    host compares the output again, and returns the message about wrong elements.
    """

    kernels: ReferenceKernels
    graph: Dataflow
    host: Downloaded
    inputs: tuple[Array, ...]
    expected: tuple[tuple[Array, Array], ...]
    """Reference and error bound of each output, as arrays with one axis."""
    sums: tuple[int, ...] = field(init=False)
    """Checksums of the arrays."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sums", self._checksums())

    def _arrays(self) -> tuple[Array, ...]:
        return (*self.inputs, *(array for pair in self.expected for array in pair))

    def _checksums(self) -> tuple[int, ...]:
        return tuple(self.kernels.checksum(array) for array in self._arrays())

    @property
    def nbytes(self) -> int:
        """Return the bytes of device memory that inputs, reference outputs and error bounds take."""
        return sum(array.nbytes for array in self._arrays())

    def changed(self, arrays: Sequence[Array]) -> str:
        """Check whether a kernel modified its inputs, the `arrays`. Return a message that names one; empty if it did not.

        DeviceLost if a kernel overwrote the stored inputs, reference outputs or error bounds.
        """
        if self._checksums() != self.sums:
            raise DeviceLost(f"a kernel wrote over the reference answers of {self.graph.name}, far outside its buffers")
        for i, (array, sent) in enumerate(zip(arrays, self.inputs, strict=True)):
            if self.kernels.differ(array, sent):
                return changed_words(i)
        return ""

    def fault(self, output: Any) -> str:
        """Compare an output with the reference. Return a message about wrong elements; empty if all are right.

        `output` is an array, or a list for several outputs.
        """
        given = [output] if len(self.expected) == 1 else list(output)
        for array, value, (reference, bound) in zip(given, self.graph.outputs, self.expected, strict=True):
            if self.kernels.wrong(array, value.dtype, reference, bound)[0]:
                return self.host.fault(output)
        return ""

    def distance(self, output: Any) -> tuple[float, float]:
        """Return (||output - reference||, ||reference||), 2-norms over all outputs, computed on the host."""
        return self.host.distance(output)


def device_fused(
    kernels: ReferenceKernels, graph: Dataflow, draws: Sequence[FusedDraw], download: Callable[[Array], np.ndarray]
) -> tuple[DeviceFused | Downloaded, ...]:
    """Copy a fused operator's draws (random inputs with expected outputs) to the device, which then compares outputs.

    If the device cannot compare an output's data type, the draws stay on the host, which downloads outputs (`Downloaded`).
    """
    on_host = tuple(downloaded_fused(draw, download) for draw in draws)
    if any(value.dtype not in CODES for value in graph.outputs):
        return on_host
    return tuple(
        DeviceFused(
            kernels, graph, host, tuple(kernels.upload(array) for array in draw.inputs),
            tuple((_flat(kernels, one.value), _flat(kernels, one.error)) for one in draw.outputs),
        )
        for draw, host in zip(draws, on_host, strict=True)
    )  # fmt: skip


def _flat(kernels: ReferenceKernels, array: np.ndarray) -> Array:
    return kernels.upload(np.ascontiguousarray(array, np.float64).reshape(-1))
