"""Models without environments, from the sizes of observation and action spaces."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv

_LEAST = {"n_steps": 2, "batch_size": 2, "buffer_size": 1}
"""Settings of training that a model's buffers are as large as."""


class Blank(VecEnv):
    """One environment that has spaces and is never stepped."""

    discount = 1.0

    def __init__(self, observations: int, actions: int, space: str) -> None:
        """So many features and actions; `space` names the actions that look ahead."""
        self._tasks = SimpleNamespace(space=space)
        super().__init__(1, spaces.Box(-np.inf, np.inf, (observations,), np.float32), spaces.Discrete(actions))

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """`tasks` of the environment, of anything else nothing."""
        return [self._tasks if attr_name == "tasks" else None]

    def _none(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("a model that was loaded for its answers has no environment; give it one with set_env")

    reset = step_async = step_wait = close = set_attr = env_method = env_is_wrapped = _none


def settings_of_answers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """An agent's settings with the smallest buffers: its network is the same."""
    return {**settings, **{name: value for name, value in _LEAST.items() if name in settings}}
