"""Search strategies and learned policies over the construction graph, their training, and shared parts of commands."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agents.ansor.optimize_tasks import TasksResult, optimize_tasks
    from agents.optimizer import Result, optimize
    from agents.recorded.tune import Tuned, tune
    from agents.strategy import STRATEGIES, Strategy, get_strategy

__all__ = ["STRATEGIES", "Result", "Strategy", "TasksResult", "Tuned", "get_strategy", "optimize", "optimize_tasks", "tune"]
_LAZY = {
    "Result": "agents.optimizer", "optimize": "agents.optimizer",
    "STRATEGIES": "agents.strategy", "Strategy": "agents.strategy", "get_strategy": "agents.strategy",
    "TasksResult": "agents.ansor.optimize_tasks", "optimize_tasks": "agents.ansor.optimize_tasks",
    "Tuned": "agents.recorded.tune", "tune": "agents.recorded.tune",
}  # fmt: skip
"""Name -> module that defines it. Modules are imported at first use, so that commands start at once and can be stopped."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'agents' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
