"""Search strategies and learned policies over the construction graph, one file each."""

from agents.ansor.optimize_tasks import TasksResult, optimize_tasks
from agents.optimize import Result, optimize
from agents.recorded.tune import Tuned, tune
from agents.strategy import STRATEGIES, Strategy, get_strategy

__all__ = ["STRATEGIES", "Result", "Strategy", "TasksResult", "Tuned", "get_strategy", "optimize", "optimize_tasks", "tune"]
