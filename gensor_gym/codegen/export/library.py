"""Kernels as one shared library in a folder that needs neither Python nor this package."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gensor_gym.codegen.export import texts
from gensor_gym.codegen.export.names import Exports
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.compile import lanes_of, run_compiler
from gensor_gym.hardware.compiler import Compiler, find_compiler
from gensor_gym.version import VERSION

RUNTIME = Path(__file__).parents[1] / "runtime"
SCHEMA = 1


@dataclass(frozen=True)
class Exported:
    """Where an export lies."""

    folder: Path
    library: Path
    header: Path
    manifest: Path


def export(
    kernels: Sequence[Kernel],
    folder: str | Path,
    threads: int,
    known: Sequence[Mapping[str, Any]] | None = None,
    library: str = "gensor_kernels",
    compiler: Compiler | None = None,
) -> Exported:
    """Write a folder with a shared library of kernels, its header and sources, an example, and a manifest.

    `known` holds for each kernel what the manifest is to say of it besides text and digest (schedule, measurement); `threads`
    is what it runs on until it is told otherwise.

    Raises:
        ValueError: without kernels, for one that is not C or is prepacked, two of one operator, a name that is no identifier,
            or a folder that holds something else.
        CompileError: with the compiler's message.
    """
    exports = [Exports(kernel) for kernel in kernels]
    _check(exports, library)
    target = check_folder(folder)
    target.mkdir(parents=True, exist_ok=True)
    compiler = compiler or find_compiler()
    _write(exports, target, library, threads)
    lines = _lines(exports, library, compiler)
    for line in lines:
        run_compiler(compiler, line, target)
    script = ["#!/bin/sh", "# For another processor: name it in -march.", "set -e", *(" ".join(line) for line in lines), ""]
    (target / "build.sh").write_text("\n".join(script), encoding="utf-8")
    for one in exports:
        (target / f"{one.name}.o").unlink()
    built = Exported(target, target / f"lib{library}.so", target / f"{library}.h", target / "manifest.json")
    _note(built, exports, known or [{} for _ in exports], compiler, threads)
    return built


def check_folder(folder: str | Path) -> Path:
    """The folder; ValueError where something else lies there than an earlier export."""
    path = Path(folder)
    if path.is_file() or path.exists() and any(path.iterdir()) and not (path / "manifest.json").exists():
        raise ValueError(f"{path} is not empty and no earlier export: expected a new folder")
    return path


def _check(exports: Sequence[Exports], library: str) -> None:
    """ValueError where no library can be made."""
    if not exports:
        raise ValueError("no kernel to export: expected at least one")
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", library):
        raise ValueError(f"library={library!r}: expected an identifier in lower case")
    for one in exports:
        if one.kernel.language != "c" or one.kernel.prepacked:
            kind = "a prepacked kernel" if one.kernel.prepacked else f"a kernel in {one.kernel.language!r}"
            raise ValueError(f"{one.kernel.operator}: {kind} is not exported as a shared library; expected plain kernels in 'c'")
    names = [one.name for one in exports]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"several kernels of {', '.join(twice)}: expected one for each operator")


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


def _note(
    built: Exported, exports: Sequence[Exports], known: Sequence[Mapping[str, Any]], compiler: Compiler, threads: int
) -> None:
    """`manifest.json`."""
    entries = [
        {
            "function": one.name, "operator": str(one.kernel.operator), "digest": one.kernel.digest,
            "arch": one.kernel.arch, "workspace_bytes": one.kernel.workspace_bytes,
            "arguments": [{"name": name, "shape": list(t.shape), "dtype": t.dtype} for name, t in one.tensors], **more,
        }
        for one, more in zip(exports, known, strict=True)
    ]  # fmt: skip
    files = sorted(path for path in built.folder.iterdir() if path.is_file() and path != built.manifest)
    manifest = {
        "schema": SCHEMA, "made_by": f"gensor_gym {VERSION}", "licence": "Apache-2.0", "threads": threads,
        "compiler": compiler.version, "kernels": entries,
        "files": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
    }  # fmt: skip
    built.manifest.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
