"""Train a class of stable-baselines3 until its processor time is spent, and record a curve. A stopped training restarts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn, VecEnvWrapper

from gensor_gym.env.seeds import seed_of_run

CLASSES: dict[str, Any] = {"PPO": PPO, "MaskablePPO": MaskablePPO, "DQN": DQN}
POINTS = 60
"""Number of points of a learning curve.

Each point has processor seconds, steps and episodes so far, and, since the last point, the mean regret and length of episodes and
the share of illegal steps.
"""
FOREVER = 1 << 40


class Counted(VecEnvWrapper):
    """Environment wrapper that counts illegal actions, unless the learner uses masks (`heeded`)."""

    def __init__(self, venv: Any, heeded: bool) -> None:
        super().__init__(venv)
        self.heeded, self.illegal = heeded, 0

    def reset(self) -> Any:
        """Start all episodes."""
        return self.venv.reset()

    def step_async(self, actions: np.ndarray) -> None:
        """Count the illegal actions and pass the actions on."""
        if not self.heeded:
            legal = np.stack(self.venv.env_method("action_masks"))
            self.illegal += int((~legal[np.arange(len(actions)), actions]).sum())
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Wait for the wrapped environments."""
        return self.venv.step_wait()


class Limit(BaseCallback):
    """Callback that ends training when its processor time is spent, and records the curve."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.episodes, self.curve = seconds, 0, list[list[float]]()
        self._since: list[tuple[float, float]] = []
        self._marked = self._illegal = 0
        self._start = time.process_time()

    @property
    def spent(self) -> float:
        """Processor seconds since the start."""
        return time.process_time() - self._start

    def _on_step(self) -> bool:
        """Record ended episodes; return whether to continue."""
        ended = [info["episode"] for info in self.locals["infos"] if "episode" in info]
        self._since += [(episode["regret"], episode["l"]) for episode in ended]
        self.episodes += len(ended)
        over = self.spent >= self.seconds
        if over or self.spent >= self.seconds * (len(self.curve) + 1) / POINTS:
            self._mark()
        return not over

    def _mark(self) -> None:
        """Add a point to the curve; unknown values are None."""
        steps, illegal = self.num_timesteps - self._marked, self.training_env.illegal - self._illegal  # type: ignore[attr-defined]
        regrets = [regret for regret, _ in self._since if np.isfinite(regret)]
        means = [float(np.mean(values)) if values else None for values in (regrets, [length for _, length in self._since])]
        self.curve.append([round(self.spent, 2), self.num_timesteps, self.episodes, *means, illegal / max(1, steps)])  # type: ignore[list-item]
        self._since, self._marked = [], self.num_timesteps
        self._illegal = self.training_env.illegal  # type: ignore[attr-defined]


def learned(learner: str, settings: Mapping[str, Any], envs: Any, seed: int, limit: Limit) -> Any:
    """Train a model until `limit` is spent, and return it."""
    torch.set_num_threads(1)
    counted = Counted(envs, learner == "MaskablePPO")
    model = CLASSES[learner]("MlpPolicy", counted, seed=seed_of_run(seed), device="cpu", **settings)

    def progress(*_: int) -> None:
        """Set the remaining share of time for schedules such as DQN's exploration, since the number of steps has no limit."""
        model._current_progress_remaining = max(0.0, 1.0 - limit.spent / limit.seconds)

    model._update_current_progress_remaining = progress
    return model.learn(FOREVER, callback=limit)
