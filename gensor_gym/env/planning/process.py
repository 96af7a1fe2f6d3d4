"""The decision process of plans. A step looks up the next state; the decisions possible there are priced at its first visit."""

from __future__ import annotations

import numpy as np

from gensor_gym.env.episodes.stepped import SteppedEpisodes
from gensor_gym.env.planning.features import SLICES, state_features
from gensor_gym.env.planning.tasks import PlanTasks
from gensor_gym.networks.planning.state import STOP


class PlanEpisodes(SteppedEpisodes):
    """Running episodes of plans."""

    tasks: PlanTasks
    remaining_at = SLICES["remaining"].start

    def _open(self, chosen: np.ndarray) -> None:
        for place in chosen:
            self._observe(place)

    def _apply(self, chosen: np.ndarray, actions: np.ndarray) -> None:
        for place, action in zip(chosen, actions, strict=True):
            row = self.rows[place]
            row[int(np.argmax(row == STOP))] = action
            self._observe(place)

    def _observe(self, place: int) -> None:
        graph = self.tasks[int(self.task[place])]
        state = graph.state(self.rows[place])
        self._reach(np.array([place]), np.array([state.seconds]))
        self.masks[place] = state.mask
        self.obs[place] = state_features(graph, state)
