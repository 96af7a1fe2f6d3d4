"""Compile C sources to shared libraries in the cache, once for each source, compiler and set of flags."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import subprocess
import tempfile
import warnings
from pathlib import Path

from gensor_gym.cache.folders import private_dir
from gensor_gym.cache.owned import PRIVATE, is_own
from gensor_gym.codegen.deadlines import COMPILE_SECONDS
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.files import named
from gensor_gym.hardware.compiler import Compiler, find_compiler

_SECONDS = COMPILE_SECONDS["c"]
_GIVEN: dict[str, Path] = {}


class CompileError(RuntimeError):
    """A compiler refused a generated source or took too long; the message contains the compiler's output."""


class CompilerLost(CompileError):
    """The compiler was killed, took too long, or had no memory or disk: another time it may compile the source."""


_LOST = re.compile(r"\b(Killed|Terminated)\b|No space left|quota exceeded|[Cc]annot allocate memory|out of memory")
"""What compilers and linkers say of themselves when they did not see a fault in the source."""


def compile_c(kernel: Kernel, compiler: Compiler | None = None, timeout: float = _SECONDS) -> Path:
    """Compile a C kernel unless the cache has it, and return the path of its shared library.

    Raises:
        ValueError: if the kernel is in another language, or the cache's folder cannot be made.
        CompileError: with the compiler's message, or if it takes more than `timeout` seconds.
    """
    return compile_text(kernel.in_language("c").source, kernel.arch, compiler, timeout)


def compile_text(source: str, arch: str, compiler: Compiler | None = None, timeout: float = _SECONDS) -> Path:
    """Compile a C source for `arch` (a `-march` value) unless the cache has its library.

    Return the path of the shared library; errors are those of `compile_c`.
    """
    if _GIVEN and (given := _GIVEN.get(key_of(source, arch))):
        return given
    compiler = compiler or find_compiler()
    line, name = _line(source, arch, compiler)
    path = private_dir("kernels") / name
    if os.path.lexists(path) and not is_own(path):
        text = f"{path} belongs to another user or can be written by others: it is not loaded, but compiled anew"
        warnings.warn(text, RuntimeWarning, stacklevel=3)
        path.unlink()
    if not path.exists() or not path.stat().st_size:  # a power cut may leave a file without its content
        _compile(source, compiler, line, path, timeout)
    return path


@functools.lru_cache(maxsize=1024)
def _line(source: str, arch: str, compiler: Compiler) -> tuple[list[str], str]:
    """Return (command line, name of the library's file) with which a source is compiled for `arch`."""
    libraries = re.search(r"#include <(math|pthread)\.h>", source) is not None
    line = compiler.line(Path("kernel.c"), Path("kernel.so"), arch, lanes_of(source), libraries=libraries)
    # `native` differs between machines that share the cache folder.
    host = _host() if "native" in arch else ""
    text = "\0".join([source, *line, compiler.version, host])
    return line, f"{hashlib.sha256(text.encode()).hexdigest()}.so"


def key_of(source: str, arch: str) -> str:
    """Return the key of a source's library for `take_libraries`: a hash of the source and `arch`."""
    return hashlib.sha256(f"{arch}\0{source}".encode()).hexdigest()


def take_libraries(paths: dict[str, str]) -> None:
    """Use libraries that another process compiled, instead of compiling.

    `paths` maps `key_of` a source to the path of its library.
    """
    _GIVEN.update({key: Path(path) for key, path in paths.items()})


def _host() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return " ".join(os.uname()[3:])
    lines = {line for line in text.splitlines() if line.startswith(("model name", "flags", "Features"))}
    return "\n".join(sorted(lines))


def lanes_of(source: str) -> int:
    """Return the number of elements of the widest vector type that a generated source uses; 1 if it uses none."""
    return max((int(width) for width in re.findall(r"\bvec(\d+)\b", source)), default=1)


def run_compiler(compiler: Compiler, line: list[str], folder: str | Path, timeout: float = _SECONDS) -> None:
    """Run one compiler command in a folder.

    CompileError, with the compiler's message, if it fails or exceeds the time limit.
    """
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=timeout, check=False, cwd=folder)
    except subprocess.TimeoutExpired as error:
        raise CompilerLost(f"{compiler.name} took more than {timeout:g} s") from error
    if done.returncode != 0:
        kind = CompilerLost if done.returncode < 0 or _LOST.search(done.stderr) else CompileError
        raise kind(f"{compiler.name} failed with status {done.returncode}:\n{done.stderr.strip()}")


def _compile(source: str, compiler: Compiler, line: list[str], path: Path, timeout: float) -> None:
    """Compile in a temporary folder next to `path`, then rename, so that readers never see an incomplete library."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="compiling-") as folder:
        with named(path):
            (Path(folder) / "kernel.c").write_text(source, encoding="utf-8")
        run_compiler(compiler, line, folder, timeout)
        (Path(folder) / "kernel.so").chmod(PRIVATE)
        os.replace(Path(folder) / "kernel.so", path)
