"""Export C kernels, or a network of them, as one shared library that needs neither Python nor this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gensor_gym.codegen.export import texts
from gensor_gym.codegen.export.folder import Exported, check_exports, entry, write_manifest
from gensor_gym.codegen.export.names import Exports
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.compile import lanes_of, run_compiler
from gensor_gym.hardware.compiler import Compiler

RUNTIME = Path(__file__).parents[1] / "runtime"


@dataclass(frozen=True)
class Unit:
    """A C source file `name`.c, which is compiled for the processor `arch` to an object of the library."""

    name: str
    text: str
    arch: str


def export_c(
    kernels: Sequence[Kernel], target: Path, known: Sequence[Mapping[str, Any]], library: str, threads: int, compiler: Compiler
) -> Exported:  # fmt: skip
    """Write the export's folder for C kernels, and return its paths."""
    exports = [Exports(kernel) for kernel in kernels]
    check_exports(exports, library, "c")
    units = [Unit(one.name, texts.kernel_file(one), one.kernel.arch) for one in exports]
    made = write_library(exports, units, target, library, threads, compiler)
    entries = [entry(one, **more) for one, more in zip(exports, known, strict=True)]
    write_manifest(made, compiler.version, entries, threads=threads)
    return made


def write_library(
    exports: Sequence[Exports], units: Sequence[Unit], target: Path, library: str, threads: int, compiler: Compiler,
    others: Mapping[str, bytes] | None = None,
) -> Exported:  # fmt: skip
    """Write header, sources and example, and build the library of `units`: a whole export except its manifest.

    `others` maps names of further files to their content; assembly sources (`.S`) among them are compiled too. A CompileError has
    the compiler's message.
    """
    target.mkdir(parents=True, exist_ok=True)
    for name, content in (others or {}).items():
        (target / name).write_bytes(content)
    _write(exports, units, target, library, threads)
    lines = _lines(units, library, compiler, [name for name in others or {} if name.endswith(".S")])
    script = ["#!/bin/sh", "# For another processor: name it in -march.", "set -e", *(" ".join(line) for line in lines), ""]
    (target / "build.sh").write_text("\n".join(script), encoding="utf-8")
    _build(lines, units, target, compiler)
    return Exported(target, (target / f"lib{library}.so",), target / f"{library}.h", target / "manifest.json")


def _write(exports: Sequence[Exports], units: Sequence[Unit], folder: Path, library: str, threads: int) -> None:
    written = {f"{unit.name}.c": unit.text for unit in units} | {
        f"{library}.h": texts.header(exports, library),
        f"{library}.c": texts.interface(exports, library, threads),
        "example.c": texts.example(exports, library),
    }
    written["runtime.h"] = (RUNTIME / "runtime.h").read_text("utf-8")
    written["runtime.c"] = '#include "runtime.h"\n' + (RUNTIME / "runtime.c").read_text("utf-8")
    for name, text in written.items():
        (folder / name).write_text(text, encoding="utf-8")


def _build(lines: Sequence[list[str]], units: Sequence[Unit], folder: Path, compiler: Compiler) -> None:
    for line in lines:
        run_compiler(compiler, line, folder)
    for unit in units:
        (folder / f"{unit.name}.o").unlink()


def _lines(units: Sequence[Unit], library: str, compiler: Compiler, assembly: Sequence[str]) -> list[list[str]]:
    """Return the command lines that build the library.

    Units are compiled for their own processors, other files for any processor, so that the library can report missing features.
    """
    hidden, lines = ["-fPIC", "-fvisibility=hidden", "-c"], []
    for unit in units:
        flags = compiler.flags(unit.arch, lanes_of(unit.text), shared=False)
        lines.append([*compiler.command, *flags, *hidden, f"{unit.name}.c", "-o", f"{unit.name}.o"])
    objects = [f"{unit.name}.o" for unit in units]
    plain = ["-O2", "-std=gnu11", "-fPIC", "-fvisibility=hidden", "-shared"]
    together = [f"{library}.c", "runtime.c", *assembly, *objects, "-o", f"lib{library}.so", "-lm", "-pthread"]
    return [*lines, [*compiler.command, *plain, *together]]
