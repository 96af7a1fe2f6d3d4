"""Target `hip`: HIP kernels for AMD GPUs, which are generated, emulated and compiled; nothing loads them yet (docs/hip.md)."""

from __future__ import annotations

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import Program
from gensor_gym.codegen.runtime.arrays import LoadedKernel
from gensor_gym.codegen.targets.target import GpuTarget


class HipUnavailableError(RuntimeError):
    """A HIP kernel cannot be loaded, because no loader exists yet. The message names the alternatives."""


class HipTarget(GpuTarget):
    """The target of AMD's CDNA GPUs (`gfx942`), with waves of 64 threads. RDNA GPUs (`gfx11`, waves of 32) are not accepted."""

    name, architectures, warp = "hip", "gfx9", 64

    def generate(self, program: Program) -> Kernel:
        """Generate the HIP kernel of a program without matrix cores; ValueError if the program's knobs need matrix cores."""
        from gensor_gym.codegen.cuda.codegen import generate_simt
        from gensor_gym.codegen.hip.dialect import HIP

        return generate_simt(program, HIP)

    def load(self, kernel: Kernel) -> LoadedKernel:
        """Raise HipUnavailableError: no loader exists yet (docs/hip.md describes one)."""
        raise HipUnavailableError(
            f"no HIP kernel can be called yet (docs/hip.md says what is missing): {kernel.operator} for {kernel.arch}; "
            "backends analytic and emulated work without"
        )
