"""Models without environments, built from the sizes of observation and action spaces, to be filled with saved weights."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv

_LEAST = {"n_steps": 2, "batch_size": 2, "buffer_size": 1}
"""Training setting that determines a buffer's size -> its smallest value."""


class Blank(VecEnv):
    """A vector of one environment that has spaces but can never be stepped."""

    discount = 1.0

    def __init__(self, observations: int, actions: int, space: str) -> None:
        """Set the numbers of observed features and actions. `space` decides the actions along which a network looks ahead."""
        self._tasks = SimpleNamespace(space=space)
        super().__init__(1, spaces.Box(-np.inf, np.inf, (observations,), np.float32), spaces.Discrete(actions))

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """A list with the environment's `tasks`; with None for any other attribute."""
        return [self._tasks if attr_name == "tasks" else None]

    def _none(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("a model that was loaded for its answers has no environment; give it one with set_env")

    reset = step_async = step_wait = close = set_attr = env_method = env_is_wrapped = _none


def settings_of_answers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """An agent's settings with the smallest buffers, for a model that only answers. The network does not change."""
    return {**settings, **{name: value for name, value in _LEAST.items() if name in settings}}
