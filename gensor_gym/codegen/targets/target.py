"""Targets: the language of kernels for some machines, and how their text is compiled and loaded."""

from __future__ import annotations

from abc import ABC, abstractmethod

from gensor_gym.codegen.chains.generate import ChainProgram
from gensor_gym.codegen.chains.panel import PanelProgram
from gensor_gym.codegen.gir.generate import GirProgram
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import Program
from gensor_gym.codegen.runtime.arrays import LoadedKernel
from gensor_gym.hardware.types import Hardware


class Target(ABC):
    """A language of kernels. Code that depends on it calls its methods and never compares names.

    `measure/runners.py` has the timing of its kernels, under the same name.
    """

    name: str
    """Language of its kernels (`Kernel.language`), part of their digests."""
    emulated = False
    """Whether the emulator runs its text on a machine without the device."""
    warp = 1
    """Threads that run in step and exchange values by shuffles."""

    @abstractmethod
    def accepts(self, hw: Hardware) -> bool:
        """Whether kernels for a machine are written in this language."""

    @abstractmethod
    def generate(self, program: Program) -> Kernel:
        """The source of a program; ValueError names the unsupported part."""

    def generate_fused(self, program: GirProgram) -> Kernel:
        """The source of a fused operator's program; ValueError names the unsupported part."""
        raise ValueError(f"{program.nest.graph} on {program.hardware.name}: {self.name} has no generator of fused operators")

    def generate_chain(self, program: ChainProgram) -> Kernel:
        """The source of a chain of products; ValueError names the unsupported part."""
        raise ValueError(f"{program.chain.graph} on {program.hardware.name}: {self.name} has no generator of chains of products")

    def generate_panel(self, program: PanelProgram) -> Kernel:
        """The source of a product with rows after it; ValueError names the unsupported part."""
        raise ValueError(f"{program.panel.graph} on {program.hardware.name}: {self.name} has no generator of products with rows")

    @abstractmethod
    def prepare(self, kernel: Kernel) -> None:
        """Prepare a kernel for `build`: compile it, unless the first call does."""

    @abstractmethod
    def load(self, kernel: Kernel) -> LoadedKernel:
        """The kernel as a function of host arrays; an error names the missing part if it cannot run here."""

    def compiler(self) -> str:
        """Compiler of its kernels here, with its version: a time holds for one compiler. Empty if there is none."""
        return ""

    def threads(self, hw: Hardware) -> int:
        """Threads of the host that run a kernel."""
        return 1


class GpuTarget(Target):
    """A language of GPUs: chosen by how the architecture is named, compiled at the first call, run by the emulator."""

    architectures: str
    """How names of the architectures that it is written for begin."""
    emulated = True

    def accepts(self, hw: Hardware) -> bool:
        """GPUs of its architectures."""
        return hw.kind == "gpu" and hw.arch.startswith(self.architectures)

    def prepare(self, kernel: Kernel) -> None:
        """Nothing: the machine that builds a kernel need not be able to compile it."""
