"""Target `c`: C kernels for the cores and vector units of a CPU, compiled by any C compiler and run in this process."""

from __future__ import annotations

from gensor_gym.codegen.chains.panel import PanelProgram
from gensor_gym.codegen.chains.program import ChainProgram
from gensor_gym.codegen.gir.generate import GirProgram
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import Program
from gensor_gym.codegen.runtime.arrays import LoadedKernel
from gensor_gym.codegen.targets.target import Target
from gensor_gym.codegen.winograd.program import WinogradProgram
from gensor_gym.hardware.types import Hardware


class CTarget(Target):
    """The target of CPUs."""

    name = "c"

    def accepts(self, hw: Hardware) -> bool:
        """Return whether the machine is a CPU."""
        return hw.kind == "cpu"

    def generate(self, program: Program) -> Kernel:
        """Generate the C kernel of a program of one loop nest (by `c/codegen.py`)."""
        from gensor_gym.codegen.c.codegen import generate_c

        return generate_c(program)

    def generate_fused(self, program: GirProgram) -> Kernel:
        """Generate the C kernel of a fused operator without products, a row nest (by `gir/generate.py`)."""
        from gensor_gym.codegen.gir.generate import generate_gir

        return generate_gir(program)

    def generate_chain(self, program: ChainProgram) -> Kernel:
        """Generate the C kernel of a chain of two products, such as attention (by `chains/generate.py`)."""
        from gensor_gym.codegen.chains.generate import generate_chain

        return generate_chain(program)

    def generate_winograd(self, program: WinogradProgram) -> Kernel:
        """Generate the C kernel of a convolution by Winograd's algorithm (by `winograd/generate.py`)."""
        from gensor_gym.codegen.winograd.generate import generate_winograd

        return generate_winograd(program)

    def generate_panel(self, program: PanelProgram) -> Kernel:
        """Generate the C kernel of a product with a row nest after it (by `chains/panel.py`)."""
        from gensor_gym.codegen.chains.panel import generate_panel

        return generate_panel(program)

    def prepare(self, kernel: Kernel) -> None:
        """Compile the kernel now; CompileError with the compiler's message if that fails."""
        from gensor_gym.codegen.runtime.compile import compile_c

        compile_c(kernel)

    def load(self, kernel: Kernel) -> LoadedKernel:
        """Load the kernel as a function of arrays, on as many threads as this process may use."""
        from gensor_gym.codegen.runtime.c import load

        return load(kernel)

    def compiler(self) -> str:
        """Return the first line of the C compiler's version text; RuntimeError if no compiler is found."""
        from gensor_gym.hardware.compiler import find_compiler

        return find_compiler().version

    def threads(self, hw: Hardware) -> int:
        """Return the number of the CPU's cores: a kernel runs on one thread per core."""
        return hw.units
