"""Base of agents that learn one task from scratch: most steps are training, then the policy's programs are measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gensor_gym.env import CONSTRUCT
from gensor_gym.suites.session import LearningSession

Act = Callable[[Any, np.ndarray, bool], int]
"""A policy as a function: (observation, legal actions bool [N], whether to take the most probable action) -> action."""


@dataclass(frozen=True)
class FromScratch(ABC):
    """Base of agents that train a policy in environments of the session, then measure the programs that it constructs.

    These are the programs of one greedy episode and of sampled episodes.
    """

    space: str = "gensor"
    shown: int = 2000
    """Number of environment steps reserved for the episodes whose programs are measured."""

    def search(self, session: LearningSession, rng: np.random.Generator) -> None:
        """Train the policy, then run episodes and measure their programs until no trial is left.

        BudgetSpent passes through. ValueError for a session without environments.
        """
        if not isinstance(session, LearningSession):
            raise ValueError(f"{type(self).__name__} learns in environments: expected a session of from_scratch of suite v1")
        act = self.learn(session, int(rng.integers(2**31)))
        env, greedy = session.make_env(**self.environment()), True
        while session.budget.trials is None or session.trials < session.budget.trials:
            show(env, act, greedy)
            greedy = False
            session.measure([env.get_wrapper_attr("schedule")])

    def environment(self) -> dict[str, Any]:
        """Return the name and keyword arguments of the agent's environment, for `LearningSession.make_env`."""
        return {"name": CONSTRUCT}

    @abstractmethod
    def learn(self, session: LearningSession, seed: int) -> Act:
        """Train and return the policy; leave `shown` steps of the session unused."""


def show(env: Any, act: Act, greedy: bool) -> None:
    """Run one episode of the policy `act`. The program is then the environment's schedule."""
    observation, _ = env.reset()
    ended = False
    while not ended:
        observation, _, ended, _, _ = env.step(act(observation, env.action_masks(), greedy))
