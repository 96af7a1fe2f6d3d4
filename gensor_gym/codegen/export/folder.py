"""The folder of an export: its location, and the manifest of its content."""

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
    """Paths of an export."""

    folder: Path
    binaries: tuple[Path, ...]
    """The shared library; of CUDA kernels a cubin each."""
    header: Path
    manifest: Path


def check_folder(folder: str | Path) -> Path:
    """The folder; ValueError if it has other content than an earlier export."""
    path = Path(folder)
    if path.is_file() or path.exists() and any(path.iterdir()) and not (path / "manifest.json").exists():
        raise ValueError(f"{path} is not empty and no earlier export: expected a new folder")
    return path


def check_exports(exports: Sequence[Exports], library: str, language: str) -> None:
    """ValueError if nothing can be made of these kernels: all plain ones in one language, one for each operator."""
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
    """The manifest's entry of a kernel in any language."""
    return {
        "function": one.name, "operator": str(one.kernel.operator), "digest": one.kernel.digest,
        "arch": one.kernel.arch, "workspace_bytes": one.kernel.workspace_bytes,
        "arguments": [{"name": name, "shape": list(t.shape), "dtype": t.dtype} for name, t in one.tensors], **more,
    }  # fmt: skip


def write_manifest(made: Exported, compiler: str, entries: Sequence[Mapping[str, Any]], **more: Any) -> None:
    """`manifest.json`: version and compiler, the kernels, and the purpose of every other file."""
    files = sorted(path for path in made.folder.iterdir() if path.is_file() and path != made.manifest)
    manifest = {
        "schema": SCHEMA, "made_by": f"gensor_gym {VERSION}", "licence": "Apache-2.0", "compiler": compiler, **more,
        "kernels": list(entries), "files": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
    }  # fmt: skip
    made.manifest.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
