"""A backend that times schedules by the clock of sources, so that an agent's programs of both kinds compare."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.targets import target_of
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend, get_backend
from gensor_gym.measure.devices.cpu import processor_name
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.native import NativeBackend, make_kernel
from gensor_gym.measure.written.trials import WrittenTrials
from gensor_gym.operators.types import Operator


class ClockedAlike:
    """Generates the C kernels of schedules and measures them as `WrittenTrials` measures sources.

    The worker of other backends calls a kernel again and again on the same memory, which caches then hold; here every call has
    new inputs.
    """

    name = "cpu"
    stored = False  # stores hold times of the other protocol

    def __init__(self, trials: WrittenTrials) -> None:
        """Make a backend that measures with `trials`, which the caller closes."""
        self.trials = trials

    def device(self, hw: Hardware) -> str:
        """Return the processor's name."""
        return processor_name()

    def digest(self, op: Operator, schedule: Any, hw: Hardware) -> str:
        """Return the digest of the generated kernel, or the program's digest if no kernel can be generated."""
        return make_kernel(op, schedule, hw).digest

    def measure(self, op: Operator, schedules: Sequence[Any], hw: Hardware) -> list[Measurement]:
        """Measure schedules. Return one measurement for each, in order."""
        return list(self.stream(op, schedules, hw))

    def stream(self, op: Operator, schedules: Sequence[Any], hw: Hardware) -> Iterator[Measurement]:
        """Yield the measurements of `measure`, each when it is ready."""
        for schedule in schedules:
            made = make_kernel(op, schedule, hw)
            yield self.trials.measure(made, secrets.randbits(31)) if isinstance(made, Kernel) else made

    def close(self) -> None:
        """Do nothing: measurements leave no process."""


def alike(backend: str | Backend, hw: Hardware) -> tuple[str | Backend, WrittenTrials | None]:
    """Return (backend for schedules, trials of sources); no trials if the backend does not run kernels.

    ValueError as from `get_backend` and `WrittenTrials`. For C, both have the same clock. A CUDA backend is returned unchanged,
    because sources in CUDA C are timed by its protocol.
    """
    found = backend if backend == "analytic" else get_backend(backend, hw)
    if not isinstance(found, NativeBackend):
        return backend, None
    trials = WrittenTrials(hw)
    return (ClockedAlike(trials) if target_of(hw).name == "c" else found), trials
