"""The folder of an export: checks of the folder and the kernels, and the manifest."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gensor_gym.codegen.export.names import Exports
from gensor_gym.version import VERSION

SCHEMA = 1


@dataclass(frozen=True)
class Exported:
    """Paths of an export's folder and files."""

    folder: Path
    binaries: tuple[Path, ...]
    """The shared library, or one cubin for each CUDA kernel."""
    header: Path
    manifest: Path


def check_folder(folder: str | Path) -> Path:
    """Return the folder as a Path; ValueError unless it is missing, empty or an earlier export."""
    path = Path(folder)
    if path.is_file() or path.exists() and any(path.iterdir()) and not (path / "manifest.json").exists():
        raise ValueError(f"{path} is not empty and no earlier export: expected a new folder")
    return path


def check_exports(exports: Sequence[Exports], library: str, language: str) -> None:
    """Check that kernels can be exported together; ValueError if not.

    Kernels must be plain (not prepacked), in `language` and of different operators, and `library` must be an identifier.
    """
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", library):
        raise ValueError(f"library={library!r}: expected an identifier in lower case")
    for one in exports:
        if one.kernel.language != language or one.kernel.prepacked:
            kind = "a prepacked kernel" if one.kernel.prepacked else f"a kernel in {one.kernel.language!r}"
            raise ValueError(f"{one.kernel.operator}: {kind} is not exported here; expected plain kernels in {language!r}")
    names = [one.name for one in exports]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"several kernels of {', '.join(twice)}: expected one for each operator")


def entry(one: Exports, **more: Any) -> dict[str, Any]:
    """Return the manifest's entry for a kernel: name, operator, digest, arguments, and the facts in `more`."""
    return {
        "function": one.name, "operator": str(one.kernel.operator), "digest": one.kernel.digest,
        "arch": one.kernel.arch, "workspace_bytes": one.kernel.workspace_bytes,
        "arguments": [{"name": name, "shape": list(t.memory), "dtype": t.dtype} for name, t in one.tensors], **more,
    }  # fmt: skip


def write_manifest(made: Exported, compiler: str, entries: Sequence[Mapping[str, Any]], **more: Any) -> None:
    """Write the export's `manifest.json`: version, compiler, the kernels' entries, and the SHA-256 of every other file."""
    files = sorted(path for path in made.folder.iterdir() if path.is_file() and path != made.manifest)
    manifest = {
        "schema": SCHEMA, "made_by": f"gensor_gym {VERSION}", "licence": "Apache-2.0", "compiler": compiler, **more,
        "kernels": list(entries), "files": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
    }  # fmt: skip
    made.manifest.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
