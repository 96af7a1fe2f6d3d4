"""Base classes of targets. A target is the language of kernels for some machines, with its generators, compiler and loader."""

from __future__ import annotations

from abc import ABC, abstractmethod

from gensor_gym.codegen.chains.panel import PanelProgram
from gensor_gym.codegen.chains.program import ChainProgram
from gensor_gym.codegen.gir.generate import GirProgram
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import Program
from gensor_gym.codegen.runtime.arrays import LoadedKernel
from gensor_gym.codegen.winograd.program import WinogradProgram
from gensor_gym.hardware.types import Hardware


class Target(ABC):
    """A language of kernels. Code that depends on the language calls these methods and never compares names.

    `measure/runners.py` has, under the same name, the backends that time the kernels.
    """

    name: str
    """Name of the language: the `Kernel.language` of its kernels and a part of their digests."""
    emulated = False
    """Whether the emulator can run the kernels on a machine without the device."""
    warp = 1
    """Number of threads of a warp, which run in step and exchange values by shuffles."""

    @abstractmethod
    def accepts(self, hw: Hardware) -> bool:
        """Return whether kernels for a machine are written in this language."""

    @abstractmethod
    def generate(self, program: Program) -> Kernel:
        """Generate the kernel of a program of one loop nest; ValueError names the part that is not supported."""

    def generate_variant(self, program: Program, variant: str) -> Kernel | None:
        """Generate another kernel of a program, one of `build.VARIANTS`; None for a program without it."""
        return None

    def generate_fused(self, program: GirProgram) -> Kernel:
        """Generate the kernel of a fused operator without products (a row nest).

        ValueError names the part that is not supported.
        """
        raise ValueError(f"{program.nest.graph} on {program.hardware.name}: {self.name} has no generator of fused operators")

    def generate_chain(self, program: ChainProgram) -> Kernel:
        """Generate the kernel of a chain of two products, such as attention; ValueError names the part that is not supported."""
        raise ValueError(f"{program.chain.graph} on {program.hardware.name}: {self.name} has no generator of chains of products")

    def generate_winograd(self, program: WinogradProgram) -> Kernel:
        """Generate the kernel of a convolution by Winograd's algorithm; ValueError names the part that is not supported."""
        raise ValueError(f"{program.op} on {program.hardware.name}: {self.name} has no generator of Winograd's algorithm")

    def generate_panel(self, program: PanelProgram) -> Kernel:
        """Generate the kernel of a product with a row nest after it; ValueError names the part that is not supported."""
        raise ValueError(f"{program.panel.graph} on {program.hardware.name}: {self.name} has no generator of products with rows")

    @abstractmethod
    def prepare(self, kernel: Kernel) -> None:
        """Compile a kernel for `build`, or do nothing if the kernel is compiled at its first call."""

    @abstractmethod
    def load(self, kernel: Kernel) -> LoadedKernel:
        """Load the kernel as a function of arrays. RuntimeError or ImportError names what this machine lacks to run it."""

    def compiler(self) -> str:
        """Return name and version of this machine's compiler for the language, on which times depend.

        The text is empty if the machine has no compiler.
        """
        return ""

    def threads(self, hw: Hardware) -> int:
        """Return the number of host threads that run a kernel."""
        return 1


class GpuTarget(Target):
    """A target of GPUs. Its kernels are compiled at their first call, and the emulator can run them."""

    architectures: str
    """Prefix of the names of the accepted architectures."""
    emulated = True

    def accepts(self, hw: Hardware) -> bool:
        """Return whether the machine is a GPU whose architecture's name begins with `architectures`."""
        return hw.kind == "gpu" and hw.arch.startswith(self.architectures)

    def prepare(self, kernel: Kernel) -> None:
        """Do nothing: the machine that builds a kernel need not be able to compile it."""
