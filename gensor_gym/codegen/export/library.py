"""Kernels as one shared library in a folder that needs neither Python nor this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gensor_gym.codegen.export import texts
from gensor_gym.codegen.export.folder import Exported, check_exports, entry, write_manifest
from gensor_gym.codegen.export.names import Exports
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.compile import lanes_of, run_compiler
from gensor_gym.hardware.compiler import Compiler

RUNTIME = Path(__file__).parents[1] / "runtime"


def export_c(
    kernels: Sequence[Kernel], target: Path, known: Sequence[Mapping[str, Any]], library: str, threads: int, compiler: Compiler
) -> Exported:  # fmt: skip
    """C kernels; see `export`."""
    exports = [Exports(kernel) for kernel in kernels]
    check_exports(exports, library, "c")
    target.mkdir(parents=True, exist_ok=True)
    _write(exports, target, library, threads)
    lines = _lines(exports, library, compiler)
    for line in lines:
        run_compiler(compiler, line, target)
    script = ["#!/bin/sh", "# For another processor: name it in -march.", "set -e", *(" ".join(line) for line in lines), ""]
    (target / "build.sh").write_text("\n".join(script), encoding="utf-8")
    for one in exports:
        (target / f"{one.name}.o").unlink()
    made = Exported(target, (target / f"lib{library}.so",), target / f"{library}.h", target / "manifest.json")
    entries = [entry(one, **more) for one, more in zip(exports, known, strict=True)]
    write_manifest(made, compiler.version, entries, threads=threads)
    return made


def _write(exports: Sequence[Exports], folder: Path, library: str, threads: int) -> None:
    """Header, sources and example."""
    written = {f"{one.name}.c": texts.kernel_file(one) for one in exports} | {
        f"{library}.h": texts.header(exports, library),
        f"{library}.c": texts.interface(exports, library, threads),
        "example.c": texts.example(exports, library),
    }
    written["runtime.h"] = (RUNTIME / "runtime.h").read_text("utf-8")
    written["runtime.c"] = '#include "runtime.h"\n' + (RUNTIME / "runtime.c").read_text("utf-8")
    for name, text in written.items():
        (folder / name).write_text(text, encoding="utf-8")


def _lines(exports: Sequence[Exports], library: str, compiler: Compiler) -> list[list[str]]:
    """Command lines: each kernel for its processor, what is around them for any: the library can say that it lacks something."""
    hidden, lines = ["-fPIC", "-fvisibility=hidden", "-c"], []
    for one in exports:
        flags = compiler.flags(one.kernel.arch, lanes_of(one.kernel.source), shared=False)
        lines.append([*compiler.command, *flags, *hidden, f"{one.name}.c", "-o", f"{one.name}.o"])
    objects = [f"{one.name}.o" for one in exports]
    plain = ["-O2", "-std=gnu11", "-fPIC", "-fvisibility=hidden", "-shared"]
    together = [f"{library}.c", "runtime.c", *objects, "-o", f"lib{library}.so", "-lm", "-pthread"]
    return [*lines, [*compiler.command, *plain, *together]]
