"""Search strategies and learned policies over the construction graph, one file each."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agents.optimize import Result, optimize
from agents.strategy import STRATEGIES, Strategy, get_strategy

if TYPE_CHECKING:
    from agents.ansor.optimize_tasks import TasksResult, optimize_tasks
    from agents.recorded.tune import Tuned, tune

__all__ = ["STRATEGIES", "Result", "Strategy", "TasksResult", "Tuned", "get_strategy", "optimize", "optimize_tasks", "tune"]
_LAZY = {
    "TasksResult": "agents.ansor.optimize_tasks", "optimize_tasks": "agents.ansor.optimize_tasks",
    "Tuned": "agents.recorded.tune", "tune": "agents.recorded.tune",
}  # fmt: skip
"""Name -> module, for objects that are imported at first use because their modules import strategies."""


def __getattr__(name: str) -> Any:
    """Import and return an object of `_LAZY`; AttributeError for any other name."""
    if name not in _LAZY:
        raise AttributeError(f"module 'agents' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
