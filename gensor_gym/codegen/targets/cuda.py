"""Target `cuda`: CUDA C kernels for NVIDIA GPUs, compiled by NVRTC and run through CuPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gensor_gym.codegen.chains.program import ChainProgram
from gensor_gym.codegen.gir.generate import GirProgram
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import Program
from gensor_gym.codegen.runtime.arrays import LoadedKernel
from gensor_gym.codegen.targets.target import GpuTarget


class CudaTarget(GpuTarget):
    """The target of NVIDIA GPUs, whose architectures are named by compute capability, such as `sm_90`."""

    name, architectures, warp = "cuda", "sm_", 32

    def generate(self, program: Program) -> Kernel:
        """Generate the CUDA kernel of a program of one loop nest (by `cuda/codegen.py`)."""
        from gensor_gym.codegen.cuda.codegen import generate_cuda

        return generate_cuda(program)

    def generate_variant(self, program: Program, variant: str) -> Kernel | None:
        """Generate the kernel of a program that `codegen.build.VARIANTS` describes; None for a program without it."""
        from gensor_gym.codegen.cuda.producer.codegen import generate_producer
        from gensor_gym.codegen.cuda.wgmma.codegen import generate_in_boxes, generate_pingpong

        made: dict[tuple[int, str], Callable[[Program], Kernel | None]] = {
            (2, "pingpong"): generate_pingpong, (2, "tma_store"): generate_in_boxes,
            (2, "pingpong_tma_store"): partial(generate_pingpong, in_boxes=True), (0, "producer"): generate_producer,
        }  # fmt: skip
        generator = made.get((program.knob("tensor_core"), variant))
        return generator(program) if generator else None

    def generate_fused(self, program: GirProgram) -> Kernel:
        """Generate the CUDA kernel of a fused operator without products, a row nest (by `gir/cuda/generate.py`)."""
        from gensor_gym.codegen.gir.cuda.generate import generate_gir_cuda

        return generate_gir_cuda(program)

    def generate_chain(self, program: ChainProgram) -> Kernel:
        """Generate the CUDA kernel of a chain of two products, such as attention (by `chains/cuda/generate.py`)."""
        from gensor_gym.codegen.chains.cuda.generate import generate_chain_cuda

        return generate_chain_cuda(program)

    def load(self, kernel: Kernel) -> LoadedKernel:
        """Load the kernel as a function of arrays, compiled for the current GPU.

        CudaUnavailableError without CuPy or a GPU of its architecture; NvrtcError if it does not compile.
        """
        from gensor_gym.codegen.runtime.cuda import load

        return load(kernel)

    def compiler(self) -> str:
        """Return `nvrtc` and its version; NvrtcError if it is not installed."""
        from gensor_gym.codegen.cuda import nvrtc

        return f"nvrtc {nvrtc.version()}"
