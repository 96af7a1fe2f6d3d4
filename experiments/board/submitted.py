"""Submitted functions, in modules or files."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


def load_function(text: str) -> Callable[..., Any]:
    """The function of MODULE:FUNCTION or FILE.py:FUNCTION; ValueError names the missing part."""
    where, colon, name = text.rpartition(":")
    try:
        found = getattr(_module(where), name) if colon else None
    except (ImportError, AttributeError, ValueError, OSError, SyntaxError) as error:
        raise ValueError(f"{text!r}: {error}") from error
    if not callable(found):
        raise ValueError(f"{text!r}: expected MODULE:FUNCTION or FILE.py:FUNCTION, as in my_agent.py:act")
    return found  # type: ignore[no-any-return]


def _module(where: str) -> ModuleType:
    """Import a module by its name or its file."""
    if not where.endswith(".py"):
        return import_module(where)
    spec = importlib.util.spec_from_file_location(Path(where).stem, where)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module in {where}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
