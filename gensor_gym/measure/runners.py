"""Runners time kernels of a target: the backend, its name, and the reason if it is unavailable.

The table has the same names as `codegen.targets`; `devices/opened.py` has the backend's devices. Kernels of a target without a
runner are only generated and emulated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from gensor_gym.codegen.targets import target_of
from gensor_gym.hardware.types import Hardware

if TYPE_CHECKING:
    from gensor_gym.measure.native import NativeBackend
    from gensor_gym.measure.workers.pool import Pool

INSTEAD = "choose backend analytic, recorded or emulated"


class Runner(ABC):
    """How kernels of one target are timed."""

    name: str
    """Name of the backend, and of the device in its worker processes."""

    def absence(self, hw: Hardware | None = None) -> str:
        """Why kernels for `hw` (of any machine of the target) cannot run here; empty when they can."""
        return ""

    @abstractmethod
    def backend(self, pool: Pool | None = None) -> NativeBackend:
        """The backend, of this machine or of a pool."""

    def start(self) -> NativeBackend:
        """The backend of this machine; ValueError names the missing part."""
        if reason := self.absence():
            raise ValueError(f"backend {self.name!r} cannot run here: {reason}; {INSTEAD}")
        return self.backend()


class CpuRunner(Runner):
    """C kernels on this processor: names of CPUs mean the host."""

    name = "cpu"

    def backend(self, pool: Pool | None = None) -> NativeBackend:
        """See `native.cpu_backend`."""
        from gensor_gym.measure.native import cpu_backend

        return cpu_backend(pool=pool)


class CudaRunner(Runner):
    """CUDA kernels on the first GPU, through CuPy."""

    name = "cuda"

    def absence(self, hw: Hardware | None = None) -> str:
        """No GPU, another GPU, no CuPy."""
        from gensor_gym.measure.devices import presence

        return presence.absence_of_cuda() if hw is None else presence.absence(hw)

    def backend(self, pool: Pool | None = None) -> NativeBackend:
        """See `native.cuda_backend`."""
        from gensor_gym.measure.native import cuda_backend

        return cuda_backend(pool=pool)


RUNNERS: dict[str, Runner] = {"c": CpuRunner(), "cuda": CudaRunner()}
"""Target -> runner; add an entry for a target of your own."""


def runner_of(hw: Hardware) -> Runner:
    """The runner of a machine's target; ValueError if the target has none."""
    language = target_of(hw).name
    if language not in RUNNERS:
        raise ValueError(f"{hw.name} cannot be timed here: nothing loads and times {language} kernels yet; {INSTEAD}")
    return RUNNERS[language]


def runner_named(name: str) -> Runner:
    """The runner of a backend."""
    return next(runner for runner in RUNNERS.values() if runner.name == name)
