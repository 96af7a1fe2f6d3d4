"""Devices of worker processes, by the name of their backend, and how their workers are started."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gensor_gym.measure.workers.trial import Device


class Opened(ABC):
    """How a backend's worker processes open their device, and how such a worker is started."""

    gpus = 0
    """Number of GPUs that one worker needs on a cluster."""
    shut_in = True
    """Whether workers are isolated (`isolation/`), because kernels' machine code runs in their process.

    Workers of GPUs are not isolated: code on a GPU makes no system calls, and drivers need sockets and files.
    """

    @abstractmethod
    def device(self) -> Device:
        """Make the device. It is called in a worker process."""

    def texts(self) -> tuple[tuple[str, str], ...]:
        """Return C sources that the device loads in addition to kernels, each with its compiler option `-march`.

        They are compiled beforehand, because an isolated worker cannot compile.
        """
        return ()


class Cpu(Opened):
    """How workers open their device, the processor on which they run."""

    def device(self) -> Device:
        """Make a `CpuDevice`."""
        from gensor_gym.measure.devices.cpu import CpuDevice

        return CpuDevice()

    def texts(self) -> tuple[tuple[str, str], ...]:
        """Return the C sources of the thread pool and of the drift anchor, each with its compiler option `-march`."""
        from gensor_gym.codegen.runtime.threads import ARCH, runtime_text
        from gensor_gym.measure.devices.anchor import anchor_text

        return (runtime_text(), ARCH), (anchor_text(), ARCH)


class Cuda(Opened):
    """How workers open their device, the first GPU, through CuPy."""

    gpus, shut_in = 1, False

    def device(self) -> Device:
        """Make a `CudaDevice`."""
        from gensor_gym.measure.devices.cuda import CudaDevice

        return CudaDevice()


DEVICES: dict[str, Opened] = {"cpu": Cpu(), "cuda": Cuda()}
"""Name of a backend -> how its workers open their device. Add an entry for a backend of your own."""


def opened_by(name: str) -> Opened:
    """Return how workers of the backend with this name open their device. ValueError names the available backends."""
    if name not in DEVICES:
        raise ValueError(f"no device {name!r}; accepted: {', '.join(DEVICES)}")
    return DEVICES[name]
