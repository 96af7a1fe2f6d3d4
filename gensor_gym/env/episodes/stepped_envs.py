"""Single and vector environments whose episodes step in NumPy (`env.episodes.stepped`), on one thread."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from gensor_gym.env.episodes.several import EpisodesVectorEnv
from gensor_gym.env.episodes.single import EpisodeEnv
from gensor_gym.env.episodes.stepped import SteppedEpisodes


class SteppedEnv(EpisodeEnv):
    """Environment of one episode. Subclasses name the class of its decision process in the attribute `episodes`."""

    episodes: ClassVar[type[SteppedEpisodes]]

    def _episodes(self) -> SteppedEpisodes:
        state = (self._row[None], self._scalars[None], self._mask[None], self._obs[None])
        return self.episodes(self.tasks, self.settings, np.array([self._task]), *state)

    def _begin(self) -> None:
        self._episodes().begin(np.zeros(1, np.int64))

    def _advance(self, action: int) -> tuple[float, bool]:
        rewards, ended = self._episodes().step(np.zeros(1, np.int64), np.array([action], np.int64))
        return float(rewards[0]), bool(ended[0])


class SteppedVectorEnv(EpisodesVectorEnv):
    """Vector environment that steps `num_envs` episodes together, on one thread.

    Each episode behaves like an environment of class `single`.
    """

    single: type[SteppedEnv]

    def __init__(self, num_envs: int = 1, *arguments: Any, **named: Any) -> None:
        """Make the environments. ValueError names a bad value.

        The arguments are those of the single environment, and `autoreset_mode` of `EpisodesVectorEnv`.
        """
        super().__init__(num_envs, *arguments, threads=1, **named)

    def _episodes(self) -> SteppedEpisodes:
        return self.single.episodes(self.tasks, self.settings, self._task, self._rows, self._scalars, self._masks, self._obs)

    def _begin_part(self, chosen: np.ndarray) -> None:
        self._episodes().begin(chosen)

    def _step_part(self, low: int, high: int, actions: np.ndarray, skip: np.ndarray) -> None:
        chosen = np.flatnonzero(~skip[low:high]) + low
        self._rewards[low:high], self._ended[low:high] = 0.0, False
        self._rewards[chosen], self._ended[chosen] = self._episodes().step(chosen, actions[chosen])
