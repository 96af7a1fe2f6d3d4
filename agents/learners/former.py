"""Trusted files from before the learners had a folder of their own name their classes by modules that are gone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

MASKED = ("policy", "ppo", "q")
FORMER = {f"{room}.masked_{name}": f"agents.learners.masked.{name}" for room in ("agents", "agents.learners") for name in MASKED}
FORMER |= {name: "agents.learners.feature_groups" for name in ("agents.groups", "agents.learners.groups")}
FORMER["agents.networks"] = "agents.learners.networks"
"""Module that a pickle names -> where its classes are now."""


@contextmanager
def former_names() -> Iterator[None]:
    """Context in which unpickling finds classes under their old names as well."""
    missing = [name for name in FORMER if name not in sys.modules]
    sys.modules.update({name: import_module(FORMER[name]) for name in missing})
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]
