"""Old module names of the learners' classes, which trusted policy files of earlier versions still contain."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

MASKED = ("policy", "ppo", "q")
FORMER = {f"{room}.masked_{name}": f"agents.learners.masked.{name}" for room in ("agents", "agents.learners") for name in MASKED}
FORMER |= {name: "agents.learners.feature_groups" for name in ("agents.groups", "agents.learners.groups")}
FORMER["agents.networks"] = "agents.learners.networks"
"""Name of a module in an old pickle -> module that now has its classes."""


@contextmanager
def former_names() -> Iterator[None]:
    """Let unpickling find classes under their old module names too, within the `with` block."""
    missing = [name for name in FORMER if name not in sys.modules]
    sys.modules.update({name: import_module(FORMER[name]) for name in missing})
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]
