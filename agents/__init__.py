"""Search strategies and learned policies over the construction graph, one file each."""

from agents.optimize import Result, optimize
from agents.optimize_tasks import TasksResult, optimize_tasks
from agents.strategy import STRATEGIES, Strategy, get_strategy
from agents.tune import Tuned, tune

__all__ = ["STRATEGIES", "Result", "Strategy", "TasksResult", "Tuned", "get_strategy", "optimize", "optimize_tasks", "tune"]
