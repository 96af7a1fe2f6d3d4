"""Shared parts of agents that learn from scratch: most of the steps are training, then they show ten programs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gensor_gym.env import CONSTRUCT
from gensor_gym.suites.session import LearningSession

Act = Callable[[Any, np.ndarray, bool], int]
"""(observation, legal actions bool [N], whether the most probable action is asked for) -> action."""


@dataclass(frozen=True)
class FromScratch(ABC):
    """Learns in environments of the session, then measures the policy's greedy episode and draws until no trial is left."""

    space: str = "gensor"
    shown: int = 2000
    """Steps that are kept for the episodes whose programs are measured."""

    def search(self, session: LearningSession, rng: np.random.Generator) -> None:
        """Spend the session's steps; BudgetSpent passes through. ValueError for a session that counts no steps."""
        if not isinstance(session, LearningSession):
            raise ValueError(f"{type(self).__name__} learns in environments: expected a session of from_scratch of suite v1")
        act = self.learn(session, int(rng.integers(2**31)))
        env, greedy = session.make_env(**self.environment()), True
        while session.budget.trials is None or session.trials < session.budget.trials:
            show(env, act, greedy)
            greedy = False
            session.measure([env.get_wrapper_attr("schedule")])

    def environment(self) -> dict[str, Any]:
        """Name and arguments of its environment."""
        return {"name": CONSTRUCT}

    @abstractmethod
    def learn(self, session: LearningSession, seed: int) -> Act:
        """The policy that was learned, `shown` steps being left."""


def show(env: Any, act: Act, greedy: bool) -> None:
    """One episode, whose program is the environment's at its end."""
    observation, _ = env.reset()
    ended = False
    while not ended:
        observation, _, ended, _, _ = env.step(act(observation, env.action_masks(), greedy))
