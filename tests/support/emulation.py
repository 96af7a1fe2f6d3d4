"""Kernels for processors that this machine need not have: compiled here, run by qemu's user-mode emulation.

qemu is taken from the PATH, else from the system's package, unpacked without installing it: that needs no rights. What is
missing is an error that says how to have it, never a reason to skip.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from gensor_gym.cache.folders import make_cache_dir
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.compile import lanes_of, run_compiler
from gensor_gym.hardware.compiler import Compiler, find_compiler
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import ARRAY_DTYPE
from tests.support.c_cases import machine

RUNTIME = Path(__file__).parents[2] / "gensor_gym" / "codegen" / "runtime"
PACKAGES = ("qemu-user-static", "qemu-user")
"""Debian's packages that have held the emulators as static programs."""
LINK_SECONDS = 280.0
"""zig compiles its C library when it links the first program for a processor: half a minute of an idle core."""


@dataclass(frozen=True)
class Target:
    """A processor to emulate: what its machine is called, the CPU that qemu shows a program, and its description.

    `guards`: pages beside tensors may not even be read. qemu 7.2 reads lanes that a mask of AVX2 leaves out.
    """

    machine: str
    cpu: str
    hardware: Hardware
    guards: bool

    @property
    def compiler(self) -> Compiler:
        """This machine's compiler where it is for such processors, else zig's with a C library of its own."""
        if os.uname().machine == self.machine:
            return find_compiler()
        return Compiler((sys.executable, "-m", "ziglang", "cc", "-target", f"{self.machine}-linux-musl"), "zig", "")

    @property
    def qemu(self) -> list[str]:
        """The command that runs a program under emulation."""
        return [emulator(self.machine), "-cpu", self.cpu]


def _hardware(name: str, lanes: int, registers: int, arch: str) -> Hardware:
    return dataclasses.replace(machine(lanes, arch), name=name, vector_registers=registers)


NEON = Target("aarch64", "cortex-a76", _hardware("neon", 4, 32, "cortex-a76"), guards=True)
AVX2 = Target("x86_64", "Haswell", _hardware("avx2", 8, 16, "haswell"), guards=False)
"""Any instruction of AVX-512 is an illegal one to it."""


@cache
def emulator(machine: str) -> str:
    """The path of `qemu-<machine>`, brought from the system's package where there is none; RuntimeError says what to install."""
    names = (f"qemu-{machine}", f"qemu-{machine}-static")
    for name in names:
        if found := shutil.which(name):
            return found
    kept = make_cache_dir("qemu") / names[1]
    if not kept.exists():
        _bring(names, kept)
    return str(kept)


def _bring(names: Sequence[str], kept: Path) -> None:
    """Put the emulator out of a downloaded package at `kept`."""
    said = []
    for package in PACKAGES:
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            try:
                _run(["apt-get", "download", package], folder)
                archive = _run(["dpkg-deb", "--fsys-tarfile", *map(str, Path(folder).glob("*.deb"))], folder)
                member = _member(archive, names, Path(folder))
                _run([str(member), "--version"], folder)
                os.replace(member, kept)
                return
            except (OSError, RuntimeError) as error:
                said.append(f"{package}: {error}")
    raise RuntimeError(f"no {names[0]}: `apt-get install qemu-user-static`, or put it on the PATH ({'; '.join(said)})")


def _member(archive: bytes, names: Sequence[str], folder: Path) -> Path:
    """The first of the named programs in an archive, as an executable file."""
    path = folder / "archive.tar"
    path.write_bytes(archive)
    with tarfile.open(path) as files:
        for item in files:
            if item.isfile() and Path(item.name).name in names and (data := files.extractfile(item)):
                program = folder / "program"
                program.write_bytes(data.read())
                program.chmod(0o755)
                return program
    raise RuntimeError(f"holds none of {', '.join(names)}")


def _run(line: list[str], folder: str) -> bytes:
    """What a command writes; RuntimeError with the last line of its words where it fails."""
    done = subprocess.run(line, cwd=folder, capture_output=True, check=False, timeout=240)
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines() or [f"status {done.returncode}"]
        raise RuntimeError(f"{line[0]}: {words[-1]}")
    return done.stdout


def built(kernels: Sequence[Kernel], target: Target, folder: Path) -> Path:
    """One program of these kernels, each compiled with the flags that it is measured with, and of the pool of threads."""
    compiler, rows = target.compiler, []
    for number, kernel in enumerate(kernels):
        (folder / f"kernel_{number}.c").write_text(f"#define gg_kernel kernel_{number}\n{kernel.source}", encoding="utf-8")
        sizes = ", ".join(str(tensor.nbytes) for tensor in kernel.operator.inputs)
        numbers = f"{len(kernel.operator.inputs)}, {{{sizes}}}, {kernel.operator.outputs[0].nbytes}, {kernel.workspace_bytes}"
        rows.append(f"    {{kernel_{number}, {numbers}}},\n")
    entries = "".join(f"entry kernel_{number};\n" for number in range(len(kernels)))
    (folder / "table.h").write_text(f"{entries}static const struct kernel kernels[] = {{\n{''.join(rows)}}};\n", encoding="utf-8")
    shutil.copy(RUNTIME / "runtime.h", folder)
    (folder / "runtime.c").write_text('#include "runtime.h"\n' + (RUNTIME / "runtime.c").read_text("utf-8"), encoding="utf-8")
    shutil.copy(Path(__file__).with_name("emulated.c"), folder)

    def compiled(name: str, lanes: int) -> str:
        flags = compiler.flags(target.hardware.arch, lanes, shared=False)
        run_compiler(compiler, [*compiler.command, *flags, "-c", f"{name}.c", "-o", f"{name}.o"], folder)
        return f"{name}.o"

    texts = {f"kernel_{number}": lanes_of(kernel.source) for number, kernel in enumerate(kernels)}
    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, *zip(*({"emulated": 1, "runtime": 1} | texts).items(), strict=True)))
    line = [*compiler.command, "-static", *objects, "-o", "program", "-lm", "-pthread"]
    run_compiler(compiler, line, folder, LINK_SECONDS)
    return folder / "program"


def outputs(
    command: Sequence[str], kernels: Sequence[Kernel], inputs: Sequence[tuple[np.ndarray, ...]], guards: bool, threads: int = 2
) -> list[np.ndarray]:
    """What a program of `built`, run by `command`, computes of the inputs; RuntimeError says what ended it early."""
    given = b"".join(array.tobytes() for arrays in inputs for array in arrays)
    line = [*command, str(threads), str(int(guards))]
    done = subprocess.run(line, input=given, capture_output=True, check=False, timeout=240)
    if done.returncode:
        raise RuntimeError(f"status {done.returncode} after {done.stderr.decode(errors='replace')[-300:].strip()!r}")
    found, at = [], 0
    for kernel in kernels:
        (tensor,) = kernel.operator.outputs
        found.append(np.frombuffer(done.stdout, ARRAY_DTYPE[tensor.dtype], tensor.size, at).reshape(tensor.shape))
        at += tensor.nbytes
    return found
