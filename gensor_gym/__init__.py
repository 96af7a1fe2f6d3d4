"""gensor_gym: the construction graph of tensor programs as a Gymnasium environment.

Importing the package registers its environments (`gensor_gym.env`). Other modules are imported at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gensor_gym.env import register
from gensor_gym.version import VERSION

__version__ = VERSION

# `compile` and `compile_buckets` are named by text, because they are defined in `agents`, which no module of the gym imports.
_LAZY = {
    "ConstructionGraph": "gensor_gym.construction",
    "Schedule": "gensor_gym.graph.schedule",
    "build": "gensor_gym.codegen",
    "compile": "agents.modules:compile_module",
    "compile_buckets": "agents.buckets:compile_buckets",
    "load_plugins": "gensor_gym.plugins",
    "load_space": "gensor_gym.spaces",
    "save_space": "gensor_gym.spaces",
    "tuned": "gensor_gym.measure.records.tuned",
}
_MODULES = ("operators", "hardware", "graph", "cost", "codegen", "construction", "measure", "env")

__all__ = [
    "ConstructionGraph", "Schedule", "build", "compile", "compile_buckets", "load_plugins", "load_space", "save_space", "tuned",
    "measure", "operators", "hardware",
]  # fmt: skip

register()


def __getattr__(name: str) -> Any:
    """Import a public name or module at its first use; AttributeError for any other name."""
    if name in _LAZY:
        module, _, attribute = _LAZY[name].partition(":")
        return getattr(import_module(module), attribute or name)
    if name in _MODULES:
        return import_module(f"gensor_gym.{name}")
    raise AttributeError(f"module 'gensor_gym' has no attribute {name!r}")
