"""Modules that a command finds by their definitions, without registration: suites of benchmarks, papers' tables."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def modules_with(beginning: str, package: str) -> dict[str, str]:
    """Name -> module of a package, at any depth, in which a line starts with `beginning`.

    The name is the module's, or its folder's for a module `suite` or a package's `__init__`.
    """
    (folder,) = find_spec(package).submodule_search_locations  # type: ignore[misc, union-attr]
    found = {}
    for path in sorted(Path(folder).rglob("*.py")):
        if f"\n{beginning}" in path.read_text(encoding="utf-8"):
            parts = [part for part in path.relative_to(folder).with_suffix("").parts if part != "__init__"]
            name = parts[-2] if parts[-1] == "suite" else parts[-1]
            found[name] = ".".join((package, *parts))
    return found
