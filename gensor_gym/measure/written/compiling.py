"""Compile a C source that an agent wrote, by a compiler with few rights, and check what the library takes from others."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import gensor_gym.codegen.runtime as runtime
from gensor_gym.cache.folders import home_folder, private_dir
from gensor_gym.codegen.kernel import WHOLE, Kernel
from gensor_gym.codegen.runtime.compile import lanes_of
from gensor_gym.hardware.compiler import Compiler, find_compiler
from gensor_gym.measure.isolation.environment import passed_on
from gensor_gym.measure.isolation.readable import SYSTEM, WRITTEN, beneath_home
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.workers.builders import CompileFailed
from gensor_gym.measure.workers.requests import Built
from gensor_gym.measure.workers.start import launched
from gensor_gym.measure.written.symbols import ACCEPTED, symbols_of
from gensor_gym.measure.written.text import MOST_WORKSPACE

SECONDS = 20
"""Time limit of a compilation in seconds. Generated kernels take 0.1 to 1 s (gcc 12, Zen 4)."""
MEMORY = 4 << 30
"""Largest address space of a compiler's process in bytes."""
HEADER = "runtime.h"
"""File with `struct gg_runtime`, which every source gets. Generated sources contain it, too, and its guard allows both."""
MOST_BYTES = 16 << 20
"""Largest library in bytes."""
MOST_WORDS = 4000
"""Number of characters of a compiler's message that an agent gets."""


class Refused(CompileFailed):
    """A source compiles, and its library is not accepted."""

    status = Status.ILLEGAL


def build_written(kernel: Kernel) -> Built:
    """Compile a C kernel that an agent wrote. CompileFailed has the compiler's message, Refused the reason of a refusal."""
    compiler, begun = find_compiler(), time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="worker-source-", dir=private_dir("scratch")))
    try:
        (folder / "kernel.c").write_text(kernel.in_language("c").source, encoding="utf-8")
        shutil.copyfile(Path(runtime.__path__[0], HEADER), folder / HEADER)
        line = compiler.line(folder / "kernel.c", folder / "kernel.so", kernel.arch, lanes_of(kernel.source))
        _run(compiler, [*line, "-include", str(folder / HEADER)], folder)
        if (size := (folder / "kernel.so").stat().st_size) > MOST_BYTES:
            raise Refused(f"the library has {size} bytes: at most {MOST_BYTES} are accepted")
        library = (folder / "kernel.so").read_bytes()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    check_library(library)
    return Built(kernel, "", compiler.version, time.perf_counter() - begun, library)


def check_library(library: bytes) -> None:
    """Raise Refused if a library lacks the entry, or takes a function from others that is not accepted."""
    try:
        symbols = symbols_of(library)
    except ValueError as error:
        raise Refused(str(error)) from error
    if WHOLE not in symbols.given:
        raise Refused(f"the source has no function {WHOLE}(inputs, output, workspace, runtime)")
    if symbols.memory > MOST_WORKSPACE:  # the worker's limit on memory does not hold for what its loader maps
        raise Refused(f"the source has {symbols.memory} bytes of data: at most {MOST_WORKSPACE} are accepted")
    if foreign := sorted(symbols.taken - ACCEPTED):
        raise Refused(f"the source calls {', '.join(foreign)[:200]}: functions of <math.h> and <string.h>'s mem* are accepted")


def _run(compiler: Compiler, line: list[str], folder: Path) -> None:
    """Run the compiler with access to the system's files and `folder`. CompileFailed has its message, or names the time limit."""
    rules = folder / "rules.json"
    paths = [*SYSTEM, *beneath_home(_installed(line[0]), home_folder() or Path("/"))]
    kept = private_dir("zig") if compiler.name == "zig" else folder  # without a cache it compiles its libraries for 17 s
    writable = [*WRITTEN, str(folder), str(kept)]
    given = {"command": line, "readable": paths, "writable": writable, "memory": MEMORY, "seconds": SECONDS}
    rules.write_text(json.dumps(given), encoding="utf-8")
    variables = passed_on(os.environ) | {"HOME": str(folder), "TMPDIR": str(folder), "ZIG_GLOBAL_CACHE_DIR": str(kept)}
    variables |= {"ZIG_LOCAL_CACHE_DIR": str(folder), "LC_ALL": "C"}
    process = subprocess.Popen(
        launched(str(rules)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        errors="replace", cwd=folder, env=variables, start_new_session=True,
    )  # fmt: skip
    try:
        _, said = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise CompileFailed(f"{compiler.name} took more than {SECONDS} s") from None
    finally:
        _end(process)
    if process.returncode != 0:
        words = said.replace(f"{folder}{os.sep}", "").strip()[:MOST_WORDS]
        raise CompileFailed(f"{compiler.name} failed with status {process.returncode}:\n{words}")


def _installed(command: str) -> list[str]:
    """Return the folders of a compiler's own files: all of PREFIX for PREFIX/bin/gcc, elsewhere the compiler's file alone."""
    found = Path(shutil.which(command) or command)
    files = (found.absolute(), found.resolve())
    return [str(file.parent.parent if file.parent.name == "bin" else file) for file in files]


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a compiler with the programs that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stderr is not None:
        process.stderr.close()
