"""Find functions that commands run, by their definitions and without registration: suites of benchmarks, papers' tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def functions_of(name: str, package: str) -> dict[str, str]:
    """Find the functions called `name` or `name`_OTHER of a configuration, in all modules of a package.

    Return (name for users -> MODULE:FUNCTION). The name for users is OTHER, or else that of the module; a module `suite` or a
    package's `__init__` has its folder's name.
    """
    (folder,) = find_spec(package).submodule_search_locations  # type: ignore[misc, union-attr]
    pattern = re.compile(rf"^def ({name}(?:_(\w+))?)\(config: DictConfig, ", re.MULTILINE)
    found = {}
    for path in sorted(Path(folder).rglob("*.py")):
        parts = [part for part in path.relative_to(folder).with_suffix("").parts if part != "__init__"]
        for function, other in pattern.findall(path.read_text(encoding="utf-8")):
            own = parts[-2] if parts[-1] == "suite" else parts[-1]
            found[other or own] = f"{'.'.join((package, *parts))}:{function}"
    return found


def loaded(found: str) -> Callable[..., Any]:
    """Import and return the function that the text MODULE:FUNCTION names."""
    module, _, function = found.partition(":")
    return getattr(import_module(module), function)  # type: ignore[no-any-return]
