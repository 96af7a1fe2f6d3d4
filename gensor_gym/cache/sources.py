"""Source files of packages, read once in a process, and the digest of this package's, which is part of keys of cached results."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
KINDS = (".py", ".c", ".h")
FITTED = "cost"
"""Folder of the package whose JSON files count as sources: constants of the cost model, which choose programs."""


@functools.cache
def files_of(package: Path) -> Mapping[str, bytes]:
    """Return the content of each source file in a package's folder, by its path in the folder, in order of the paths."""
    found = {}
    for at, folders, names in os.walk(package):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            if name.endswith(KINDS):
                path = os.path.join(at, name)
                with open(path, "rb") as file:
                    found[os.path.relpath(path, package)] = file.read()
    return dict(sorted(found.items()))


@functools.cache
def sources() -> str:
    """Return the SHA-256 of this package's source files and of the cost model's constants; it is part of keys."""
    found = hashlib.sha256()
    constants = {path.name: path.read_bytes() for path in sorted((PACKAGE / FITTED).glob("*.json"))}
    for path, content in {**files_of(PACKAGE), **constants}.items():
        found.update(f"{path}\0".encode() + content)
    return found.hexdigest()
