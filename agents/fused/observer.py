"""Observations of policies for fused operators; the observer also remembers the fastest programs of every episode."""

from __future__ import annotations

import gymnasium
import numpy as np

from agents.learners.observer import Charge, Observer
from gensor_gym.env.fused.observation import NUM_FEATURES
from gensor_gym.env.observation import LIMIT
from gensor_gym.gir.schedule import ROW


class GirObserver(Observer):
    """Observer for `Gir-v0`: passes on the flat observation and remembers the `retain` fastest programs of every episode."""

    def __init__(self, envs: object, retain: int = 1, charge: Charge = lambda count, best: None) -> None:
        super().__init__(envs, retain, charge)  # type: ignore[arg-type]
        self.rows = np.zeros((self.envs.num_envs, retain, ROW), dtype=np.int32)

    @property
    def space(self) -> gymnasium.spaces.Box:
        """Observation space of a single environment."""
        return gymnasium.spaces.Box(-LIMIT, LIMIT, (NUM_FEATURES,), dtype=np.float32)

    @staticmethod
    def features(space: str) -> int:
        """Return the number of values that a policy observes, which is the same for every space."""
        return NUM_FEATURES

    def observe(self, flat: np.ndarray, over: np.ndarray) -> np.ndarray:
        """Return the observations `flat` unchanged, and remember the current programs of episodes that are not `over`.

        Each program costs one model evaluation.
        """
        here = np.flatnonzero(~over)
        task, rows, spaces = self.envs.task_indices[here], self.envs.rows[here], self.envs.tasks.spaces  # type: ignore[attr-defined]
        seconds = spaces.terms_of(task, spaces.numbers(task, rows))[:, 0]
        slowest = self.seconds[here].argmax(axis=1)
        known = (self.rows[here] == rows[:, None]).all(axis=2) & np.isfinite(self.seconds[here])
        better = ~known.any(axis=1) & (seconds < self.seconds[here, slowest])
        self.rows[here[better], slowest[better]] = rows[better]
        self.seconds[here[better], slowest[better]] = seconds[better]
        self._asked(len(here))
        return flat
