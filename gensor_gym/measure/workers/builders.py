"""Compiles kernels to files: C by the compiler, CUDA by NVRTC. No device is used, and no file is loaded."""

from __future__ import annotations

import time
from pathlib import Path

from gensor_gym.cache.folders import private_dir
from gensor_gym.cache.owned import read_own
from gensor_gym.codegen import targets
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.files import write_whole
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.workers.requests import Built


class CompileFailed(Exception):
    """The compiler refused a kernel. The text is the compiler's message, `status` that of the trial."""

    status = Status.COMPILE_ERROR


class CompilerGone(CompileFailed):
    """The compiler ended early, for a reason that is not the kernel's, such as a full disk. Searches try the kernel again."""

    status = Status.CRASHED


def build_c(kernel: Kernel) -> Built:
    """Compile a C kernel to a shared library; CompileFailed has the compiler's message."""
    from gensor_gym.codegen.runtime.compile import CompileError, CompilerLost, compile_c

    start = time.perf_counter()
    try:
        path = compile_c(kernel)
    except CompileError as error:
        raise (CompilerGone if isinstance(error, CompilerLost) else CompileFailed)(str(error)) from error
    return Built(kernel, str(path), targets.get(kernel.language).compiler(), time.perf_counter() - start)


def build_cubin(kernel: Kernel) -> Built | str:
    """Compile a CUDA kernel to a cubin file in the cache, in a worker. Return a text if that fails.

    The text is NVRTC's log, or the reason why the machine code is not worth timing (`CompiledKernel.loss`).
    """
    from gensor_gym.codegen.cuda import nvrtc

    start = time.perf_counter()
    try:
        compiled = nvrtc.compile_cubin(kernel)
    except nvrtc.NvrtcError as error:
        return str(error)
    if compiled.loss:
        return f"pruned before timing: {compiled.loss}"
    path = private_dir(nvrtc.cache_folder().name) / f"{kernel.digest}.{kernel.arch}.bin"
    if not _holds(path, compiled.cubin):
        write_whole(path, compiled.cubin, 0o600)
    return Built(kernel, str(path), targets.get(kernel.language).compiler(), time.perf_counter() - start)


def _holds(path: Path, cubin: bytes) -> bool:
    """Whether a file contains a cubin and only this user can write it."""
    try:
        return read_own(path) == cubin
    except ValueError:
        return False
