"""Devices of worker processes, by the name of their backend, and how such a process is started."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gensor_gym.measure.workers.trial import Device


class Opened(ABC):
    """A device as worker processes have it."""

    gpus = 0
    """GPUs that a worker on a cluster takes."""
    shut_in = True
    """Whether its workers are isolated (`isolation/`): they run machine code of kernels in their own process.

    Code of a device makes no system calls, and drivers need sockets and files, so workers of GPUs are not.
    """

    @abstractmethod
    def device(self) -> Device:
        """The device, in a worker process."""

    def texts(self) -> tuple[tuple[str, str], ...]:
        """C sources that the device loads besides kernels, each with its `-march`: an isolated worker cannot compile."""
        return ()


class Cpu(Opened):
    """The processor that the worker runs on."""

    def device(self) -> Device:
        """See `devices/cpu.py`."""
        from gensor_gym.measure.devices.cpu import CpuDevice

        return CpuDevice()

    def texts(self) -> tuple[tuple[str, str], ...]:
        """The pool of threads and the anchor."""
        from gensor_gym.codegen.runtime.threads import ARCH, runtime_text
        from gensor_gym.measure.devices.anchor import anchor_text

        return (runtime_text(), ARCH), (anchor_text(), ARCH)


class Cuda(Opened):
    """The first GPU, through CuPy."""

    gpus, shut_in = 1, False

    def device(self) -> Device:
        """See `devices/cuda.py`."""
        from gensor_gym.measure.devices.cuda import CudaDevice

        return CudaDevice()


DEVICES: dict[str, Opened] = {"cpu": Cpu(), "cuda": Cuda()}
"""Name of a backend -> device of its workers; add an entry for a backend of your own."""


def opened_by(name: str) -> Opened:
    """The device of a backend's workers; ValueError names the available ones."""
    if name not in DEVICES:
        raise ValueError(f"no device {name!r}; accepted: {', '.join(DEVICES)}")
    return DEVICES[name]
