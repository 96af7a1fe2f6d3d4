"""Runners: for each target (language of kernels) the backend that times its kernels, and the reason if it is unavailable here.

`RUNNERS` has the names of `codegen.targets`. `devices/opened.py` has the devices of the backends' workers. Kernels of a target
without a runner can only be generated and emulated.
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
    """Backend that times the kernels of one target."""

    name: str
    """Name of the backend, and of the device in its worker processes."""

    def absence(self, hw: Hardware | None = None) -> str:
        """Return the reason why kernels for `hw` cannot run here; empty if they can. None: for any machine of the target."""
        return ""

    @abstractmethod
    def backend(self, pool: Pool | None = None) -> NativeBackend:
        """Return the backend that times kernels on this machine, or with the workers of `pool`."""

    def start(self) -> NativeBackend:
        """Return the backend that times kernels on this machine. ValueError names what is missing."""
        if reason := self.absence():
            raise ValueError(f"backend {self.name!r} cannot run here: {reason}; {INSTEAD}")
        return self.backend()


class CpuRunner(Runner):
    """Times C kernels on this machine's processor, whichever CPU the schedules were made for."""

    name = "cpu"

    def backend(self, pool: Pool | None = None) -> NativeBackend:
        """Return the `cpu` backend; see `native.cpu_backend`."""
        from gensor_gym.measure.native import cpu_backend

        return cpu_backend(pool=pool)


class CudaRunner(Runner):
    """Times CUDA kernels on the first GPU, through CuPy."""

    name = "cuda"

    def absence(self, hw: Hardware | None = None) -> str:
        """Return the reason why CUDA kernels for `hw` cannot run here (no GPU, another GPU, no CuPy); empty if they can."""
        from gensor_gym.measure.devices import presence

        return presence.absence_of_cuda() if hw is None else presence.absence(hw)

    def backend(self, pool: Pool | None = None) -> NativeBackend:
        """Return the `cuda` backend; see `native.cuda_backend`."""
        from gensor_gym.measure.native import cuda_backend

        return cuda_backend(pool=pool)


RUNNERS: dict[str, Runner] = {"c": CpuRunner(), "cuda": CudaRunner()}
"""Name of a target -> its runner. Add an entry for a target of your own."""


def runner_of(hw: Hardware) -> Runner:
    """Return the runner of a machine's target (the language of its kernels). ValueError if the target has none."""
    language = target_of(hw).name
    if language not in RUNNERS:
        raise ValueError(f"{hw.name} cannot be timed here: nothing loads and times {language} kernels yet; {INSTEAD}")
    return RUNNERS[language]


def runner_named(name: str) -> Runner:
    """Return the runner whose backend has this name."""
    return next(runner for runner in RUNNERS.values() if runner.name == name)
