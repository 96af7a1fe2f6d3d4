"""Compilation of HIP text to AMD GPU assembly by a clang with the AMDGPU backend, without ROCm and without a GPU.

The Python package `ziglang` contains such a clang (LLVM with all its backends). A `clang` on the PATH with that backend
also works.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gensor_gym.codegen.deadlines import COMPILE_SECONDS
from gensor_gym.codegen.kernel import Kernel

HEADERS = Path(__file__).parents[1]
"""Include folder of the package's own <hip/hip_runtime.h>, which replaces ROCm's."""
PACKAGE = "ziglang"
_OPTIONS = ("-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "-std=c++17", "-O3", "-S")


class HipCompileError(RuntimeError):
    """No clang for AMD GPUs is available, or clang rejected a kernel or took too long. The message contains clang's output."""


@dataclass(frozen=True)
class CompiledHip:
    """The assembly of a HIP kernel and the compiler's statistics.

    `vector_registers` (per lane), `shared_bytes` and `wave` (lanes) are maxima over all entries, and `spilled_registers` is the
    sum of spilled vector registers. `shared_bytes` is static LDS, which is 0 for generated kernels.
    """

    assembly: str
    vector_registers: int
    spilled_registers: int
    shared_bytes: int
    wave: int


@functools.cache
def find_clang() -> tuple[str, ...]:
    """Return the command of a clang for amdgcn: `clang` on the PATH, or the `ziglang` package's.

    HipCompileError names the package to install.
    """
    candidates: list[tuple[str, ...]] = [(path,)] if (path := shutil.which("clang")) else []
    if importlib.util.find_spec(PACKAGE):
        candidates.append((sys.executable, "-m", PACKAGE, "clang"))
    for command in candidates:
        done = subprocess.run([*command, "--print-targets"], capture_output=True, text=True, timeout=60, check=False)
        if "amdgcn" in done.stdout:
            return command
    raise HipCompileError(f"no clang for amdgcn among {candidates or 'none'}: pip install {PACKAGE}, or install ROCm's hipcc")


def compile_hip(kernel: Kernel, timeout: float = COMPILE_SECONDS["hip"]) -> CompiledHip:
    """Compile a HIP kernel for its architecture, for example `gfx942`, within `timeout` seconds.

    ValueError for a kernel in another language. HipCompileError if there is no clang, or if it rejects the kernel or takes too
    long.
    """
    source, command = kernel.in_language("hip").source, find_clang()
    with tempfile.TemporaryDirectory(prefix="gensor-gym-hip-") as folder:
        path = Path(folder) / "kernel.hip"
        path.write_text(source, encoding="utf-8")
        line = [*command, *_OPTIONS, f"--offload-arch={kernel.arch}", f"-I{HEADERS}", str(path), "-o", f"{folder}/kernel.s"]
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired as error:
            raise HipCompileError(f"clang took more than {timeout:g} s for {kernel.operator}") from error
        if done.returncode:
            raise HipCompileError(f"clang refused {kernel.operator}:\n{done.stderr.strip()}")
        return _read((Path(folder) / "kernel.s").read_text(encoding="utf-8"))


def _read(assembly: str) -> CompiledHip:
    def values(name: str) -> list[int]:
        return [int(n) for n in re.findall(rf"^    \.{name}:\s*(\d+)$", assembly, re.MULTILINE)]

    registers, spills = values("vgpr_count"), values("vgpr_spill_count")
    return CompiledHip(
        assembly, max(registers), sum(spills), max(values("group_segment_fixed_size")), max(values("wavefront_size"))
    )
