"""Build models without environments, from the sizes of observations and actions alone, to fill them with saved weights."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv

_LEAST = {"n_steps": 2, "batch_size": 2, "buffer_size": 1}
"""Training setting that determines a buffer's size -> the setting's smallest allowed value."""


class Blank(VecEnv):
    """A vector of one environment, for which a model can be built: it only has spaces and can never be stepped."""

    discount = 1.0

    def __init__(self, observations: int, actions: int, space: str) -> None:
        """Define the spaces by the numbers of observed features and actions.

        `space`, the name of a space of schedules, decides the actions along which a network looks ahead.
        """
        self._tasks = SimpleNamespace(space=space)
        super().__init__(1, spaces.Box(-np.inf, np.inf, (observations,), np.float32), spaces.Discrete(actions))

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return [`tasks` of the environment], or [None] for any other attribute."""
        return [self._tasks if attr_name == "tasks" else None]

    def _none(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("a model that was loaded for its answers has no environment; give it one with set_env")

    reset = step_async = step_wait = close = set_attr = env_method = env_is_wrapped = _none


def settings_of_answers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return an agent's settings with the smallest buffers, for a model that is only evaluated. The network does not change."""
    return {**settings, **{name: value for name, value in _LEAST.items() if name in settings}}
