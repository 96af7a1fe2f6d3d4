"""What a search of a suite works with: a session that ends by its budget, and one that gives no model."""

from __future__ import annotations

from gensor_gym.measure.session import Budget, Session, Task


class NoModel(ValueError):
    """A search asked the model in a track that gives none."""


class ModelFreeSession(Session):
    """A session whose graph refuses to evaluate the model."""

    def __init__(self, task: Task, budget: Budget) -> None:
        """As of `Session`."""
        super().__init__(task, budget)
        self.graph.meter = _refuse

    def charge(self, evaluations: int) -> None:
        """NoModel, whatever is asked."""
        _refuse(evaluations)


def _refuse(evaluations: int) -> None:
    """See `NoModel`."""
    raise NoModel(f"{evaluations} evaluations of the model asked for: this track gives no model, expected none")
