"""Decision process of the environments whose rules are not compiled: NumPy steps many episodes at once.

Rewards are those of `env.reward`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from gensor_gym.env.episodes.scalars import LATENCY, POTENTIAL, REMAINING, START_LATENCY, STEPS
from gensor_gym.env.reward import final_reward, step_reward
from gensor_gym.env.settings import Settings
from gensor_gym.graph.actions import STOP
from gensor_gym.graph.compiling.plain import text_of

_step_reward, _final_reward = text_of(step_reward), text_of(final_reward)


class SteppedEpisodes(ABC):
    """Decision process that keeps B running episodes in arrays and steps any subset of them at once.

    The arrays are tasks int64 [B], rows int32 [B, R], scalars float64 [B, NUM_SCALARS], masks int8 [B, N], features float32 [B,
    F]. `tasks` has three arrays with one entry for each of its K tasks: seconds of the first state (`starts`), roofline floors in
    seconds (`floors`) and maximum numbers of steps (`horizons`).
    """

    remaining_at: ClassVar[int]
    """Index of the first of the two features about the steps left."""

    def __init__(
        self, tasks: Any, settings: Settings, task: np.ndarray, rows: np.ndarray, scalars: np.ndarray, masks: np.ndarray,
        obs: np.ndarray,
    ) -> None:  # fmt: skip
        """Keep references to the arrays of an environment, into which `begin` and `step` write."""
        self.tasks, self.settings = tasks, settings
        self.task, self.rows, self.scalars, self.masks, self.obs = task, rows, scalars, masks, obs

    @abstractmethod
    def _open(self, chosen: np.ndarray) -> None:
        """Write the features (except the steps left) and the masks of the chosen episodes.

        It calls `_reach`, which writes the latencies and potentials of their states.
        """

    @abstractmethod
    def _apply(self, chosen: np.ndarray, actions: np.ndarray) -> None:
        """Apply legal actions to the rows of the chosen episodes, then write the new states' features and masks like `_open`."""

    def begin(self, chosen: np.ndarray) -> None:
        """Start the chosen episodes. Their first states are the rows that the caller has written into `rows`."""
        task = self.task[chosen]
        self.scalars[chosen, START_LATENCY] = self.tasks.starts[task]
        self.scalars[chosen, REMAINING] = self.tasks.horizons[task]
        self.scalars[chosen, STEPS] = 0
        self._open(chosen)
        self._fill_remaining(chosen)

    def step(self, chosen: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Take one action in each chosen episode, and return (rewards float64, whether the episode ended, bool).

        `actions` is int64, one per chosen episode. An illegal action changes nothing and costs its step. With one step left any
        action counts as `stop`. If the backend measures programs, the reward of `stop` lacks the final reward R, which the caller
        adds.
        """
        scalars, settings = self.scalars, self.settings
        before = settings.shaping * scalars[chosen, POTENTIAL]
        ended = (actions == STOP) | (scalars[chosen, REMAINING] <= 1)
        scalars[chosen, REMAINING] -= 1
        scalars[chosen[~ended], STEPS] += 1
        inside = (actions >= 0) & (actions < self.masks.shape[1])
        legal = inside & (self.masks[chosen, np.where(inside, actions, STOP)] == 1) & ~ended
        if legal.any():
            self._apply(chosen[legal], actions[legal])
        self._fill_remaining(chosen)
        after = settings.shaping * scalars[chosen, POTENTIAL]
        rewards = _step_reward(before, after, settings.discount, settings.step_cost)
        rewards[ended] = -before[ended]
        if settings.backend == "analytic":
            floors = self.tasks.floors[self.task[chosen[ended]]]
            pairs = zip(floors.tolist(), scalars[chosen[ended], LATENCY].tolist(), strict=True)
            rewards[ended] += [_final_reward(*pair) for pair in pairs]
        self._leave_stop(chosen[ended | (scalars[chosen, REMAINING] <= 1)])
        return rewards, ended

    def _reach(self, chosen: np.ndarray, seconds: np.ndarray) -> None:
        """Write the model's latencies `seconds` float64 [N] and the potentials of the episodes' new states."""
        self.scalars[chosen, LATENCY] = seconds
        self.scalars[chosen, POTENTIAL] = np.log(self.tasks.starts[self.task[chosen]] / seconds)

    def _fill_remaining(self, chosen: np.ndarray) -> None:
        left = self.scalars[chosen, REMAINING]
        self.obs[chosen, self.remaining_at] = left / self.tasks.horizons[self.task[chosen]]
        self.obs[chosen, self.remaining_at + 1] = np.log2(left + 1.0) / 8.0

    def _leave_stop(self, chosen: np.ndarray) -> None:
        self.masks[chosen] = np.arange(self.masks.shape[1]) == STOP
