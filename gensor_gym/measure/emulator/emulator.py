"""Compiles the CUDA text of kernels with a C++ compiler and runs it on this CPU, to check correctness.

The threads of a block are fibers (see `emulator.h`). Sanitizers of addresses and undefined behaviour watch buffers that are
exactly as long as the tensors. Its times say nothing about a GPU.
"""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from gensor_gym.codegen import targets
from gensor_gym.codegen.cuda.tensor_map import TensorMap
from gensor_gym.codegen.cuda.text import SCALARS
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.operators.types import ARRAY_DTYPE, Tensor

HEADER = Path(__file__).with_name("emulator.h")
MAX_LINES_OF_ERROR = 40

_SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g1")
_OPTIONS = ("-std=c++17", "-O1", "-fno-strict-aliasing", "-Wno-unknown-pragmas", "-Wno-attributes")


class EmulatorError(RuntimeError):
    """A kernel did not compile, or broke a rule while it ran. The message is the compiler's, sanitizer's or emulator's report."""


def find_cxx() -> tuple[str, ...]:
    """Return the command of a C++ compiler: $CXX, c++, g++, clang++ or the `ziglang` wheel's. EmulatorError if none is found."""
    named = os.environ.get("CXX", "").split()
    if named and shutil.which(named[0]):
        return tuple(named)
    for name in ("c++", "g++", "clang++"):
        if path := shutil.which(name):
            return (path,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "c++")
    raise EmulatorError("no C++ compiler: set CXX, or install g++, clang++ or the Python package `ziglang`")


def emulate(
    kernel: Kernel, inputs: Sequence[np.ndarray], seed: int = 0, sanitize: bool = True, timeout: float = 120.0
) -> Any:
    """Run a CUDA kernel in the emulator, in a process of its own. Return its output, or a list of several outputs.

    `inputs` are the operator's arrays in order. `seed` determines the order of threads. `timeout` is in seconds. EmulatorError
    has the report of the compiler, the sanitizer or the emulator.
    """
    with EmulatedKernels([kernel], sanitize) as program:
        return program.run(0, inputs, seed, timeout)


class EmulatedKernels:
    """Several CUDA kernels compiled together for the emulator, because a compiler's start takes most of the time.

    Each runs in a new process.
    """

    def __init__(self, kernels: Sequence[Kernel], sanitize: bool = True) -> None:
        """Compile the kernels. ValueError unless all are for one target of GPUs; EmulatorError has the compiler's report."""
        languages = {kernel.language for kernel in kernels}
        if len(languages) != 1 or not all(targets.get(language).emulated for language in languages):
            names = ", ".join(map(repr, sorted(languages)))
            raise ValueError(f"the emulator runs kernels of one target of GPUs at a time, not of language {names}")
        self.kernels = tuple(kernels)
        self._folder = tempfile.TemporaryDirectory(prefix="gensor-gym-emulator-")
        self._path = Path(self._folder.name)
        try:
            self._compile(sanitize)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the compiled files."""
        self._folder.cleanup()

    def __enter__(self) -> EmulatedKernels:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _compile(self, sanitize: bool) -> None:
        for number, kernel in enumerate(self.kernels):
            (self._path / f"kernel_{number}.cu").write_text(kernel.source)
        (self._path / "main.cpp").write_text(driver_text(self.kernels))
        command = [*find_cxx(), *_OPTIONS, *(_SANITIZERS if sanitize else ()), f"-I{HEADER.parent}"]
        command += [str(self._path / "main.cpp"), "-o", str(self._path / "main")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            hint = "; without sanitizers: sanitize=False" if sanitize else ""
            raise EmulatorError(f"{' '.join(command)} failed{hint}\n{_head(done.stderr)}")

    def run(self, number: int, inputs: Sequence[np.ndarray], seed: int = 0, timeout: float = 120.0) -> Any:
        """Run the kernel with index `number`. Return its output; see `emulate`."""
        op = self.kernels[number].operator
        if len(inputs) != len(op.inputs):
            raise ValueError(f"{op}: {len(inputs)} arrays given, expected {[t.name for t in op.inputs]}")
        with tempfile.TemporaryDirectory(dir=self._path) as name:
            source, target = Path(name) / "inputs", Path(name) / "output"
            source.write_bytes(b"".join(_bytes_of(t, a) for t, a in zip(op.inputs, inputs, strict=True)))
            settings = {
                **os.environ,
                "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0:abort_on_error=0:exitcode=4",
                "UBSAN_OPTIONS": "print_stacktrace=1:exitcode=5",
            }
            command = [str(self._path / "main"), str(number), str(seed), str(source), str(target)]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=timeout, env=settings, check=False
                )
            except subprocess.TimeoutExpired as late:
                raise EmulatorError(f"{op}: not done after {timeout} s") from late
            if done.returncode:
                raise EmulatorError(f"{op}: exit status {done.returncode}\n{_head(done.stderr)}")
            outputs = _arrays(op.outputs, target.read_bytes())
            return outputs[0] if len(outputs) == 1 else outputs


def _bytes_of(tensor: Tensor, array: np.ndarray) -> bytes:
    """Return an input's bytes in the kernel's storage format. ValueError if its shape differs from the tensor's."""
    if np.shape(array) != tensor.shape:
        raise ValueError(f"input {tensor.name} has shape {np.shape(array)}; the kernel takes {tensor.shape}")
    return np.ascontiguousarray(array, dtype=ARRAY_DTYPE[tensor.dtype]).tobytes()


def _arrays(tensors: Sequence[Tensor], data: bytes) -> list[np.ndarray]:
    found, place = [], 0
    for tensor in tensors:
        array = np.frombuffer(data, ARRAY_DTYPE[tensor.dtype], math.prod(tensor.shape), place)
        found.append(array.reshape(tensor.shape).copy())
        place += tensor.nbytes
    return found


def _head(report: str) -> str:
    """Return the first lines of a sanitizer's report, without its general warning about `makecontext`."""
    lines = [line for line in report.splitlines() if "makecontext/swapcontext" not in line]
    return "\n".join(lines[:MAX_LINES_OF_ERROR])


def driver_text(kernels: Sequence[Kernel]) -> str:
    """Return C++ text that includes every kernel, each under names of its own, and has a `main` that runs one kernel.

    Arguments of the program: number of the kernel, seed, file of inputs, file of the output.
    """
    warp = f"#define EMULATOR_WARP {targets.get(kernels[0].language).warp}\n"
    parts = [warp + '#include "emulator.h"\n#include "emulator_mma.h"\n']
    if any(kernel.maps for kernel in kernels):
        parts.append('#include "emulator_wgmma.h"\n')
    if any(kernel.dependent for kernel in kernels):
        parts.append('#include "emulator_grids.h"\n')
    parts += [_include_text(number, kernel) for number, kernel in enumerate(kernels)]
    cases = "".join(f"    case {number}: return run_{number}(argv[3], argv[4]);\n" for number in range(len(kernels)))
    parts.append(
        "int main(int argc, char **argv) {\n"
        "  if (argc != 5) return 2;\n"
        "  const rlimit none{0, 0};\n  setrlimit(RLIMIT_CORE, &none);\n"
        "  emulator::random_state = strtoull(argv[2], nullptr, 10) * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du;\n"
        f"  switch (atoi(argv[1])) {{\n{cases}  }}\n"
        "  return 2;\n}\n"
    )
    return "\n".join(parts)


def _include_text(number: int, kernel: Kernel) -> str:
    op = kernel.operator
    shared = max(-(-launch.shared_bytes // 16) * 16 * (launch.cluster - 1) + launch.shared_bytes for launch in kernel.launches)
    names = [*(launch.entry for launch in kernel.launches), "shared_memory"]
    lines = [f"#define {name} {name}_{number}" for name in names]
    lines.append(f'#include "kernel_{number}.cu"')
    if shared:
        lines.append(f"alignas(16) unsigned char shared_memory[{shared}];")
    types = [f"const {SCALARS[t.dtype].name} *" for t in op.inputs]
    types += [f"{SCALARS[t.dtype].name} *" for t in op.outputs] + ["float *"]
    plain = [f"static_cast<{kind}>(a[{i}])" for i, kind in enumerate(types)]
    arguments = ", ".join([f"maps_{number}[{i}]" for i in range(len(kernel.maps))] + plain)
    if kernel.maps:
        lines.append(f"static TensorMap maps_{number}[{len(kernel.maps)}];")
    for launch in kernel.launches:
        lines.append(f"static void call_{launch.entry}_{number}(void **a) {{ {launch.entry}({arguments}); }}")
    outputs = {i: tensor.nbytes for i, tensor in enumerate(op.outputs, len(op.inputs))}
    arrays = len(op.inputs) + len(outputs) + 1
    lines.append(f"static int run_{number}(const char *source, const char *target) {{")
    lines.append('  FILE *file = fopen(source, "rb");\n  if (file == nullptr) return 2;')
    lines.append(f"  void *a[{arrays}];")
    lines += [f"  a[{i}] = emulator::read_exactly(file, {tensor.nbytes});" for i, tensor in enumerate(op.inputs)]
    lines.append("  fclose(file);")
    for i, size in {**outputs, arrays - 1: kernel.workspace_bytes}.items():
        lines.append(f"  a[{i}] = {f'memset(malloc({size}), 0xff, {size})' if size else 'nullptr'};")
    if kernel.cleared_bytes:
        lines.append(f"  memset(a[{arrays - 1}], 0, {kernel.cleared_bytes});")
    lines += [f"  maps_{number}[{i}] = {_map_text(made)};" for i, made in enumerate(kernel.maps)]
    lines += _launches(number, kernel)
    if kernel.cleared_bytes:
        lines.append(f"  emulator::check_cleared(static_cast<unsigned char *>(a[{arrays - 1}]), {kernel.cleared_bytes});")
    lines.append('  file = fopen(target, "wb");')
    written = " || ".join(f"fwrite(a[{i}], 1, {size}, file) != {size}" for i, size in outputs.items())
    lines.append(f"  if (file == nullptr || {written}) return 2;")
    lines.append(f"  for (int i = 0; i < {arrays}; ++i) free(a[i]);\n  return fclose(file);\n}}")
    lines += [f"#undef {name}" for name in names]
    return "\n".join(lines) + "\n"


def _map_text(made: TensorMap) -> str:
    """Return the C++ text of a TMA tensor map as the emulator's `TensorMap`, with the innermost dimension first."""
    shape, strides, box = (", ".join(str(n) for n in reversed(part)) for part in (made.shape, made.strides, made.box))
    data = f"static_cast<const unsigned char *>(a[{made.argument}]) + {made.offset}"
    rest = f"{len(made.shape)}, {made.item}, {made.swizzle}, {{{', '.join(map(str, reversed(made.every)))}}}"
    rest += f", {int(made.dtype == 'tf32')}"
    return f"TensorMap{{{data}, {{{strides}}}, {{{shape}}}, {{{box}}}, {rest}}}"


def _launches(number: int, kernel: Kernel) -> list[str]:
    """Return the C++ lines that launch a kernel's entries. Inputs of a dependent kernel arrive when it waits."""
    op, lines = kernel.operator, list[str]()
    if kernel.dependent:
        sizes = [*(tensor.nbytes for tensor in (*op.inputs, *op.outputs)), kernel.workspace_bytes]
        lines += [f"  emulator::withhold(a[{i}], {size}, {str(i < len(op.inputs)).lower()});" for i, size in enumerate(sizes)]
    for launch in kernel.launches:
        lines.append(f"  {_launch_text(number, launch)}")
        lines += [f"  emulator::check_waits({math.prod(launch.grid) * math.prod(launch.block)});"] if kernel.dependent else []
    return lines


def _launch_text(number: int, launch: Launch) -> str:
    grid, block = (f"dim3{{{', '.join(map(str, shape))}}}" for shape in (launch.grid, launch.block))
    shared = "shared_memory" if launch.shared_bytes else "nullptr"
    together = f"{launch.shared_bytes}, {launch.cluster}"
    return f"emulator::launch(call_{launch.entry}_{number}, a, {grid}, {block}, {shared}, {together});"
