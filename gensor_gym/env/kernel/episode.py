"""An episode of `Construct-v0` with steps that only an agent that writes takes: to any schedule, and to a source of its own."""

from __future__ import annotations

from typing import Any

from gensor_gym.env import process
from gensor_gym.env.construct import ConstructEnv
from gensor_gym.env.episodes.scalars import BEST, PAID, REMAINING
from gensor_gym.env.measured import facts
from gensor_gym.env.reward import improvement
from gensor_gym.graph.actions import STOP
from gensor_gym.graph.compiling.early import at_once
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Measurement

NOTHING = -1
"""Number of an action that is illegal in every state: it changes nothing and costs its step."""


class TextEpisode(ConstructEnv):
    """`Construct-v0` with `reward="best_so_far"`, whose process also rewards whole schedules and programs measured elsewhere."""

    def leap(self, schedule: Schedule) -> float:
        """Take the step to a legal schedule, and return its reward. With one step left it changes nothing; call `finish`."""
        if self.remaining <= 1:
            return 0.0
        tasks = self.tasks
        reward: float = process.leap_one(
            self._task, self._row, self._scalars, schedule.row, tasks.ints, tasks.floats, tasks.sizes, self._vector, self._room,
            self._mask, self._obs,
        )  # fmt: skip
        return reward

    def wait(self) -> float:
        """Take a step that changes nothing, and return its reward."""
        return self.step(NOTHING)[1] if self.remaining > 1 else 0.0

    def credit(self, measurement: Measurement) -> tuple[float, dict[str, Any]]:
        """Take a step that evaluates a program which is no schedule. Return (reward, entries of `info`)."""
        reward, seconds, before = self.wait(), measurement.seconds, float(self._scalars[BEST])
        if seconds < before:
            with at_once():
                reward += float(improvement(self.graph.floor, before, seconds))
            self._scalars[BEST] = seconds
        self._scalars[PAID] += 1
        return reward, facts(measurement)

    def finish(self) -> tuple[float, dict[str, Any]]:
        """Evaluate the schedule and end the episode. Return (reward, entries of `info`)."""
        self._scalars[REMAINING] = min(1.0, float(self._scalars[REMAINING]))
        _, reward, _, _, info = self.step(STOP)
        return reward, info

    @property
    def best_seconds(self) -> float:
        """Seconds of the fastest evaluated program of the episode; infinite before the first."""
        return float(self._scalars[BEST])
