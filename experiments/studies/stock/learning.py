"""Learning by a class of stable-baselines3 until its processor time is spent, with a curve, going on where it was stopped."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn, VecEnvWrapper

from experiments.commands.stopping import Stopped, asked, at_safe_points
from experiments.resuming.archive import read_state, write_state
from experiments.resuming.model import restore_model, state_of_model
from gensor_gym.env.seeds import seed_of_run

CLASSES: dict[str, Any] = {"PPO": PPO, "MaskablePPO": MaskablePPO, "DQN": DQN}
POINTS = 60
"""Of a learning curve."""
EVERY_S = 60.0
"""Processor seconds between two checkpoints."""
FOREVER = 1 << 40
CURVE = ("seconds", "steps", "episodes", "regret", "length", "illegal")
"""Of a point: processor seconds, steps and episodes so far; means of the episodes, and of the steps, since the last."""


class Counted(VecEnvWrapper):
    """Counts the actions that were not legal, where masks are not heeded."""

    def __init__(self, venv: Any, heeded: bool) -> None:
        """`heeded`: nothing is counted, none is illegal."""
        super().__init__(venv)
        self.heeded, self.illegal = heeded, 0

    def reset(self) -> Any:
        """Start all episodes."""
        return self.venv.reset()

    def step_async(self, actions: np.ndarray) -> None:
        """Count, and hand on."""
        if not self.heeded:
            legal = np.stack(self.venv.env_method("action_masks"))
            self.illegal += int((~legal[np.arange(len(actions)), actions]).sum())
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Hand on."""
        return self.venv.step_wait()


class Limit(BaseCallback):
    """Ends the learning when its processor time is spent; keeps the curve, and writes checkpoints between rollouts."""

    def __init__(self, seconds: float, path: Path, begun: Mapping[str, Any]) -> None:
        """`path` of the checkpoint, `begun` what binds it."""
        super().__init__()
        self.seconds, self.path, self.begun = seconds, path, begun
        self.before, self.episodes, self.curve = 0.0, 0, list[list[float]]()
        self._since: list[tuple[float, float]] = []
        self._marked = self._illegal = 0
        self._saved = 0.0
        self._start = time.process_time()

    @property
    def spent(self) -> float:
        """Processor seconds so far, those before a stop among them."""
        return self.before + time.process_time() - self._start

    def go_on(self, state: Mapping[str, Any]) -> None:
        """From a checkpoint's."""
        self.before = self._saved = float(state["spent"])
        self.episodes, self.curve, self._marked = int(state["episodes"]), list(state["curve"]), int(state["marked"])

    def _on_step(self) -> bool:
        """Whether to go on."""
        ended = [info["episode"] for info in self.locals["infos"] if "episode" in info]
        self._since += [(episode["regret"], episode["l"]) for episode in ended]
        self.episodes += len(ended)
        over = self.spent >= self.seconds
        if over or self.spent >= self.seconds * (len(self.curve) + 1) / POINTS:
            self._mark()
        return not over

    def _mark(self) -> None:
        """A point of the curve, of which what is not known is None."""
        steps, illegal = self.num_timesteps - self._marked, self.training_env.illegal - self._illegal  # type: ignore[attr-defined]
        regrets = [regret for regret, _ in self._since if np.isfinite(regret)]
        means = [float(np.mean(values)) if values else None for values in (regrets, [length for _, length in self._since])]
        self.curve.append([round(self.spent, 2), self.num_timesteps, self.episodes, *means, illegal / max(1, steps)])  # type: ignore[list-item]
        self._since, self._marked = [], self.num_timesteps
        self._illegal = self.training_env.illegal  # type: ignore[attr-defined]

    def _on_rollout_start(self) -> None:
        """What was gathered has been learned from: the state is whole."""
        due = self.spent - self._saved >= EVERY_S
        if (due and self.seconds > EVERY_S) or asked():
            envs = self.training_env.venv.state()  # type: ignore[attr-defined]
            state = {"spent": self.spent, "episodes": self.episodes, "curve": self.curve, "marked": self._marked}
            write_state(self.path, self.begun, {**state, "model": state_of_model(self.model), "environments": envs})
            self._saved = self.spent
        if asked():
            raise Stopped


def learned(learner: str, settings: Mapping[str, Any], envs: Any, seed: int, limit: Limit) -> Any:
    """The model after its processor seconds. Stopped, it goes on from the last checkpoint with other random numbers."""
    torch.set_num_threads(1)
    counted = Counted(envs, learner == "MaskablePPO")
    model = CLASSES[learner]("MlpPolicy", counted, seed=seed_of_run(seed), device="cpu", **settings)

    def progress(*_: int) -> None:
        """What is left of the time, after which schedules go, such as of DQN's exploration: steps are not limited."""
        model._current_progress_remaining = max(0.0, 1.0 - limit.spent / limit.seconds)

    model._update_current_progress_remaining = progress
    kept = read_state(limit.path, lambda begun: _check(begun, limit)) if limit.path.exists() else None
    if kept is not None:
        model._setup_learn(FOREVER)
        restore_model(model, kept["model"])
        envs.restore(kept["environments"])
        limit.go_on(kept)
    with at_safe_points():
        model.learn(FOREVER, callback=limit, reset_num_timesteps=kept is None)
    limit.path.unlink(missing_ok=True)
    return model


def _check(begun: Mapping[str, Any], limit: Limit) -> None:
    """ValueError for a checkpoint of another learning."""
    if dict(begun) != dict(limit.begun):
        raise ValueError(f"{limit.path} is of another learning; remove it")
