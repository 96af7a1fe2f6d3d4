"""Decision process of fused operators. A step looks up its result in a table of the operator's whole space (`GirTable`)."""

from __future__ import annotations

import numpy as np

from gensor_gym.env.episodes.stepped import SteppedEpisodes
from gensor_gym.env.fused.observation import DYNAMIC, SLICES, fill_state
from gensor_gym.env.fused.tasks import GirTasks


class Episodes(SteppedEpisodes):
    """Decision process of fused operators: running episodes that look up transitions and times in tables."""
    tasks: GirTasks
    remaining_at = SLICES["remaining"].start

    def _open(self, chosen: np.ndarray) -> None:
        task = self.task[chosen]
        self.obs[chosen, DYNAMIC:] = self.tasks.static[task]
        self._observe(chosen, self.tasks.spaces.numbers(task, self.rows[chosen]))

    def _apply(self, chosen: np.ndarray, actions: np.ndarray) -> None:
        task, spaces = self.task[chosen], self.tasks.spaces
        after = spaces.after(task, spaces.numbers(task, self.rows[chosen]), actions)
        self.rows[chosen] = spaces.rows(task, after)
        self._observe(chosen, after)

    def _observe(self, chosen: np.ndarray, numbers: np.ndarray) -> None:
        """Write times, masks and features of the chosen episodes' new states.

        `numbers` int64 are the indices of these states in their spaces.
        """
        task, spaces = self.task[chosen], self.tasks.spaces
        terms, starts = spaces.terms_of(task, numbers), self.tasks.starts[task]
        self._reach(chosen, terms[:, 0])
        self.masks[chosen] = spaces.masks(task, numbers, self.rows[chosen])
        found = self.obs[chosen]
        fill_state(self.rows[chosen], terms, starts, found)
        self.obs[chosen] = found
