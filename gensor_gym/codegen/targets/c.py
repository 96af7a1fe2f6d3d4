"""Target `c`: C for the cores and vector units of a CPU, by any C compiler, run in this process."""

from __future__ import annotations

from gensor_gym.codegen.chains.generate import ChainProgram
from gensor_gym.codegen.chains.panel import PanelProgram
from gensor_gym.codegen.gir.generate import GirProgram
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import Program
from gensor_gym.codegen.runtime.arrays import LoadedKernel
from gensor_gym.codegen.targets.target import Target
from gensor_gym.hardware.types import Hardware


class CTarget(Target):
    """Kernels of CPUs."""

    name = "c"

    def accepts(self, hw: Hardware) -> bool:
        """Every CPU."""
        return hw.kind == "cpu"

    def generate(self, program: Program) -> Kernel:
        """See `c/codegen.py`."""
        from gensor_gym.codegen.c.codegen import generate_c

        return generate_c(program)

    def generate_fused(self, program: GirProgram) -> Kernel:
        """See `gir/generate.py`."""
        from gensor_gym.codegen.gir.generate import generate_gir

        return generate_gir(program)

    def generate_chain(self, program: ChainProgram) -> Kernel:
        """See `chains/generate.py`."""
        from gensor_gym.codegen.chains.generate import generate_chain

        return generate_chain(program)

    def generate_panel(self, program: PanelProgram) -> Kernel:
        """See `chains/panel.py`."""
        from gensor_gym.codegen.chains.panel import generate_panel

        return generate_panel(program)

    def prepare(self, kernel: Kernel) -> None:
        """Compile now: CompileError with the compiler's message."""
        from gensor_gym.codegen.runtime.compile import compile_c

        compile_c(kernel)

    def load(self, kernel: Kernel) -> LoadedKernel:
        """The kernel on as many threads as this process may use."""
        from gensor_gym.codegen.runtime.c import load

        return load(kernel)

    def compiler(self) -> str:
        """Its own first line; RuntimeError without a compiler."""
        from gensor_gym.hardware.compiler import find_compiler

        return find_compiler().version

    def threads(self, hw: Hardware) -> int:
        """One thread for each core."""
        return hw.units
