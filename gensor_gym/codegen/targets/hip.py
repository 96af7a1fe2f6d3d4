"""Target `hip`: HIP for AMD GPUs, generated, emulated and compiled; nothing here loads or times it yet (docs/hip.md)."""

from __future__ import annotations

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import Program
from gensor_gym.codegen.runtime.arrays import LoadedKernel
from gensor_gym.codegen.targets.target import GpuTarget


class HipUnavailableError(RuntimeError):
    """No loader of HIP kernels exists yet; the message names the alternatives."""


class HipTarget(GpuTarget):
    """Kernels of AMD's CDNA GPUs, which are named by their instruction set: `gfx942`. RDNA's (`gfx11`) have waves of 32."""

    name, architectures, warp = "hip", "gfx9", 64

    def generate(self, program: Program) -> Kernel:
        """The source without matrix cores; ValueError for knobs that need them."""
        from gensor_gym.codegen.cuda.codegen import generate_simt
        from gensor_gym.codegen.hip.dialect import HIP

        return generate_simt(program, HIP)

    def load(self, kernel: Kernel) -> LoadedKernel:
        """HipUnavailableError: docs/hip.md describes a loader."""
        raise HipUnavailableError(
            f"no HIP kernel can be called yet (docs/hip.md says what is missing): {kernel.operator} for {kernel.arch}; "
            "backends analytic and emulated work without"
        )
