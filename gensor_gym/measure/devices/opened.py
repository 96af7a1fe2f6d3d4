"""Devices of worker processes by the name of their backend, and how their workers are started."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gensor_gym.measure.workers.trial import Device


class Opened(ABC):
    """A device of worker processes: how to make it, and how its workers are started."""

    gpus = 0
    """Number of GPUs that a worker on a cluster uses."""
    shut_in = True
    """Whether workers are isolated (`isolation/`), because kernels' machine code runs in their process.

    Workers of GPUs are not isolated: code on a GPU makes no system calls, and drivers need sockets and files.
    """

    @abstractmethod
    def device(self) -> Device:
        """Make the device. It is called in a worker process."""

    def texts(self) -> tuple[tuple[str, str], ...]:
        """C sources that the device loads in addition to kernels, each with its `-march`.

        An isolated worker cannot compile them.
        """
        return ()


class Cpu(Opened):
    """The processor that the worker runs on."""

    def device(self) -> Device:
        """Make a `CpuDevice`."""
        from gensor_gym.measure.devices.cpu import CpuDevice

        return CpuDevice()

    def texts(self) -> tuple[tuple[str, str], ...]:
        """C sources of the thread pool and of the anchor, each with its `-march`."""
        from gensor_gym.codegen.runtime.threads import ARCH, runtime_text
        from gensor_gym.measure.devices.anchor import anchor_text

        return (runtime_text(), ARCH), (anchor_text(), ARCH)


class Cuda(Opened):
    """The first GPU, through CuPy."""

    gpus, shut_in = 1, False

    def device(self) -> Device:
        """Make a `CudaDevice`."""
        from gensor_gym.measure.devices.cuda import CudaDevice

        return CudaDevice()


DEVICES: dict[str, Opened] = {"cpu": Cpu(), "cuda": Cuda()}
"""Name of a backend -> device of its workers. Add an entry for a backend of your own."""


def opened_by(name: str) -> Opened:
    """The device of a backend's workers; ValueError names the available backends."""
    if name not in DEVICES:
        raise ValueError(f"no device {name!r}; accepted: {', '.join(DEVICES)}")
    return DEVICES[name]
