"""Vector environment that constructs tensor programs: compiled code steps thousands of them, on several threads."""

from __future__ import annotations

import numpy as np

from gensor_gym.env import process
from gensor_gym.env.construct import ConstructEnv
from gensor_gym.env.episodes.several import EpisodesVectorEnv
from gensor_gym.env.tasks import TaskSet


class ConstructVectorEnv(EpisodesVectorEnv):
    """Vector environment of `num_envs` tensor programs. Each behaves like a `ConstructEnv` with the same arguments."""

    tasks: TaskSet
    single = ConstructEnv

    def _begin_part(self, chosen: np.ndarray) -> None:
        tasks = self.tasks
        process.begin_range(
            chosen, self._task, self._rows, self._scalars, tasks.ints, tasks.floats, tasks.sizes, tasks.static,
            tasks.initial, tasks.starts, tasks.room(), self._masks, self._obs,
        )  # fmt: skip

    def _step_part(self, low: int, high: int, actions: np.ndarray, skip: np.ndarray) -> None:
        tasks = self.tasks
        process.step_range(
            low, high, self._task, self._rows, self._scalars, actions, skip, tasks.ints, tasks.floats, tasks.sizes,
            self._vector, tasks.room(), self._masks, self._obs, self._rewards, self._ended,
        )  # fmt: skip
