"""A search of the suites: a strategy by name, in its own space, with a number of trials."""

from __future__ import annotations

from agents import get_strategy
from agents.optimizer import run
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend
from gensor_gym.measure.session import Budget, Session, Task
from gensor_gym.operators.types import Operator


def searched(
    op: Operator, hw: Hardware, backend: Backend, name: str, trials: int, seed: int, store: str | None = None
) -> Session:
    """Run a search and return its session; trials that the `store` contains are answered from it."""
    strategy = get_strategy(name)
    session = Session(Task(op, hw, backend, strategy.space), Budget(trials=trials), store)
    run(strategy, session, seed)
    return session
