"""What measured programs use besides time: energy and processor events, as observations and as a second objective."""

from __future__ import annotations

import math
from typing import Any, cast

import gymnasium
import numpy as np

from gensor_gym.env.episodes.single import EpisodeEnv
from gensor_gym.env.graph_view import box
from gensor_gym.env.observation import LIMIT
from gensor_gym.env.reward import final_reward
from gensor_gym.measure.devices.energy import METERS
from gensor_gym.measure.measurement import Measurement, Status

UNITS = {"energy_j": 100.0, "cycles": 1e9, "instructions": 1e9, "cache_misses": 1e6}
"""An observation is the base-10 logarithm of the use per second over this one: 100 W, and events per second."""


def used_per_call(measurement: Measurement) -> dict[str, float]:
    """Return joules and events of one call, by names of `METERS`. Readings that its conditions lack are missing.

    They are those of sampling, in proportion to the time of a call.
    """
    conditions: dict[str, Any] = measurement.conditions
    if measurement.status is not Status.OK or "metered_s" not in conditions:
        return {}
    calls = conditions["metered_s"] / measurement.seconds
    return {name: conditions[name] / calls for name in METERS if name in conditions}


class UseOfPrograms(gymnasium.Wrapper):
    """Adds what measured programs use to the observations and rewards of a single environment.

    An observation becomes a dictionary: `schedule` is that of the environment, and `used` float32 [5] describes the program that
    was measured last: 1, then joules, cycles, instructions and cache misses per second, as logarithms (`UNITS`). A reading is 0
    if the machine does not have it, and all are 0 before the first program. `info["used"]` has the readings of one call.

    With a `weight` w from 0 to 1, a final program with reward R gets (1 - w) R + w R2. R2 is R of the time in which a machine
    uses as much of `objective` if it uses `per_second` in each second, such as 100 J. Without that reading it gets R.
    """

    def __init__(
        self, env: gymnasium.Env, objective: str = "energy_j", per_second: float | None = None, weight: float = 0.0
    ) -> None:
        """Wrap an environment. ValueError for a bad argument, or if a weighted reward is not that of a measured final program."""
        super().__init__(env)
        if objective not in METERS:
            raise ValueError(f"no objective {objective!r}; it is one of {METERS}")
        per_second = UNITS[objective] if per_second is None else per_second
        if not 0.0 <= weight <= 1.0 or not 0.0 < per_second < math.inf:
            raise ValueError(f"weight={weight} per_second={per_second}: expected 0 to 1, and a positive number")
        self._inner = cast(EpisodeEnv, env.unwrapped)
        if weight and (self._inner.final.backend is None or self._inner.settings.goes_on):
            raise ValueError("a second objective needs a backend that measures, and reward='final'")
        self._objective, self._per_second, self._weight = objective, per_second, weight
        self.observation_space = gymnasium.spaces.Dict({"schedule": env.observation_space, "used": box(1 + len(METERS))})

    def reset(self, **given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start an episode, like `gymnasium.Env.reset`."""
        observation, info = self.env.reset(**given)
        return self._with_use(observation), info

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Take one action, like `gymnasium.Env.step`."""
        final = self._inner.final
        before, final.last = final.last, None
        try:
            observation, reward, ended, truncated, info = self.env.step(action)
            last = final.last  # None if the step measured no program, or ended with an illegal one
        finally:
            final.last = final.last or before
        if last is not None and (used := used_per_call(last)):
            info["used"] = used
            if ended and self._weight and self._objective in used:
                floor, seconds = self._inner.graph.floor, used[self._objective] / self._per_second
                gain = final_reward(floor, max(seconds, 1e-12)) - final_reward(floor, last.seconds)
                reward = float(reward) + self._weight * gain
        return self._with_use(observation), float(reward), ended, truncated, info

    def _with_use(self, observation: Any) -> dict[str, Any]:
        features, last = np.zeros(1 + len(METERS), np.float32), self._inner.final.last
        used = {} if last is None else used_per_call(last)
        for place, name in enumerate(METERS, 1):
            if last is not None and used.get(name, 0.0) > 0.0:
                features[place] = np.clip(math.log10(used[name] / last.seconds / UNITS[name]), -LIMIT, LIMIT)
        features[0] = float(bool(used))
        return {"schedule": observation, "used": features}
