"""Kernels become files: C through the compiler, CUDA through NVRTC. Neither touches a device nor loads what it made."""

from __future__ import annotations

import time

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.measure.native import CompileFailed
from gensor_gym.measure.requests import Built


def build_c(kernel: Kernel) -> Built:
    """Compile a C kernel to a shared library; CompileFailed carries the compiler's words."""
    from gensor_gym.codegen.compile import CompileError, compile_c

    start = time.perf_counter()
    try:
        path = compile_c(kernel)
    except CompileError as error:
        raise CompileFailed(str(error)) from error
    return Built(kernel, str(path), find_compiler().version, time.perf_counter() - start)
