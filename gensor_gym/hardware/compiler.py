"""The C compiler of this machine, and the flags for generated code."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from gensor_gym.cache.folders import cache_dir
from gensor_gym.cache.jsons import read_kept, write_json

VARIABLE = "GENSOR_GYM_CC"
_CANDIDATES = ("gcc", "clang", "cc")
_KEPT = "compilers.json"
"""File in the cache with the versions of known compilers, because asking a compiler starts a process."""
_HELP = "install gcc or clang, or `pip install ziglang`, or name a compiler in $" + VARIABLE


@dataclass(frozen=True)
class Compiler:
    """A C compiler that answered when asked for its version."""

    command: tuple[str, ...]
    """Command to run, for example `("gcc",)`."""
    name: str
    """`gcc`, `clang` or `zig`: the family that decides the flags."""
    version: str
    """First line of the compiler's version text. Measurements record it as one of their conditions."""

    def flags(self, arch: str, lanes: int, shared: bool = True) -> tuple[str, ...]:
        """Return the compiler's flags for code with vectors of `lanes` float32 values on `arch` (`native`, `cascadelake`, ..).

        -O2 and not -O3: gcc 12.2 was seen to miscompile a plain zero-padding loop at -O3. No -ffast-math: it changes results.
        Contraction to multiply-add is allowed because the error bound of verification holds with it.
        """
        target = "-mcpu" if self.name == "zig" or _is_arm() else "-march"
        name = arch.replace("-", "_") if self.name == "zig" else arch
        flags = ["-O2", "-std=gnu11", f"{target}={name}", "-ffp-contract=fast"]
        # Generated code has vectors already, so joining scalars gains nothing. clang 22 was seen to miscompile eight
        # adjacent int8 dot products; gcc 12 took 4 s instead of 0.4 s for unrolled loads of single lanes.
        flags.append("-fno-tree-slp-vectorize" if self.name == "gcc" else "-fno-slp-vectorize")
        if lanes == 16:
            # Without this flag clang splits vectors of 512 bits for CPUs whose predecessors lowered the clock to run them.
            flags.append("-mprefer-vector-width=512")
        if shared:
            flags += ["-fPIC", "-shared"]
        return tuple(flags)

    def line(
        self, source: Path, output: Path, arch: str, lanes: int, *, shared: bool = True, libraries: bool = True
    ) -> list[str]:
        """Return the command line that compiles one file.

        Libraries are last, because linkers may drop libraries not used before. `libraries=False` is for a shared library that
        only calls functions that every process has (`memcpy`): searching libraries takes most of the linker's time.
        """
        last = ["-lm", "-pthread"] if libraries or self.name == "zig" or sys.platform != "linux" else ["-nostdlib"]
        return [*self.command, *self.flags(arch, lanes, shared), str(source), "-o", str(output), *last]


class NoCompilerError(RuntimeError):
    """No C compiler was found, or the compiler named in $GENSOR_GYM_CC does not run."""


def find_compiler() -> Compiler:
    """Return the compiler to use: $GENSOR_GYM_CC if set, else the first of gcc, clang, cc and `zig cc` of the `ziglang` wheel.

    Raises:
        NoCompilerError: if no compiler is found (the message says what to install), or if $GENSOR_GYM_CC does not run.
    """
    return _find(os.environ.get(VARIABLE, ""), os.environ.get("PATH", ""))


@functools.cache
def _find(forced: str, path: str) -> Compiler:
    if forced.strip():
        compiler = _ask(tuple(shlex.split(forced)))
        if compiler is None:
            raise NoCompilerError(f"${VARIABLE}={forced!r} does not answer --version; {_HELP}")
        return compiler
    for name in _CANDIDATES:
        compiler = _ask((name,)) if shutil.which(name, path=path) else None
        if compiler is not None:
            return compiler
    if importlib.util.find_spec("ziglang") is not None:
        compiler = _ask((sys.executable, "-m", "ziglang", "cc"))
        if compiler is not None:
            return compiler
    raise NoCompilerError(f"no C compiler found: {_HELP}")


def _ask(command: tuple[str, ...]) -> Compiler | None:
    """Ask a compiler for its version; None if it does not answer --version. The answer of an unchanged file is cached."""
    file = _file(command)
    kept = read_kept(cache_dir() / _KEPT) if file else None
    version = (kept or {}).get(file)
    if isinstance(version, str) and version:
        return Compiler(command, _family(command, version), version)
    version = _version(command)
    if not version:
        return None
    if file:
        write_json(cache_dir() / _KEPT, {**(kept or {}), file: version})
    return Compiler(command, _family(command, version), version)


def _file(command: tuple[str, ...]) -> str:
    """Return the cache key of the program that a command runs: path, size and time of change; empty if it may not be cached.

    Scripts, and wrappers of another compiler (ccache, zig), are asked every time.
    """
    found = shutil.which(command[0]) if len(command) == 1 else None
    path = Path(found).resolve() if found else None
    if path is None or not re.search("gcc|clang", path.name) or not os.access(path, os.R_OK):
        return ""
    with path.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return ""
    known = path.stat()
    return f"{path} {known.st_size} {known.st_mtime_ns}"


def _version(command: tuple[str, ...]) -> str:
    """Return the first line of a compiler's answer to --version; empty if the command does not answer."""
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().partition("\n")[0].strip() if done.returncode == 0 else ""


def _family(command: tuple[str, ...], version: str) -> str:
    """Return the family of a compiler: `zig`, `clang` or `gcc`."""
    if "ziglang" in command or Path(command[0]).stem == "zig":
        return "zig"
    return "clang" if re.search(r"\bclang\b", version, re.IGNORECASE) else "gcc"


def _is_arm() -> bool:
    """Whether this is 64-bit ARM, where all compilers accept -mcpu."""
    return os.uname().machine in ("aarch64", "arm64")
