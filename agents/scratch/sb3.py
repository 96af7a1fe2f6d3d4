"""Algorithms of stable-baselines3 and sb3-contrib, trained from scratch with their defaults, except for expensive settings.

Rollouts of PPO have the default 2,048 steps in total, from 32 environments, in minibatches of 512 instead of 64. DQN learns from
128 transitions for every 16 steps instead of 32 for every 4, which is the same ratio, and its buffer is no larger than the number
of steps. PPO and DQN have no masks and may choose illegal actions; each costs a step.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import DQN, PPO

from agents.scratch.learned import Act, FromScratch
from gensor_gym.env import WRITE
from gensor_gym.env.seeds import seed_of_run
from gensor_gym.suites.session import LearningSession

if TYPE_CHECKING:
    from gensor_gym.env.sb3 import ConstructVecEnv


@dataclass(frozen=True)
class Sb3(FromScratch):
    """Base of agents with an algorithm of stable-baselines3 or sb3-contrib."""

    num_envs: int = 32

    def learn(self, session: LearningSession, seed: int) -> Act:
        """Train the algorithm's model; return its predictions as the policy."""
        from gensor_gym.env.sb3 import ConstructVecEnv

        seed = seed_of_run(seed)
        torch.manual_seed(seed)
        envs = ConstructVecEnv(session.make_vec(self.num_envs, **self.environment()))
        envs.seed(seed)
        model = self.make(envs, seed)
        round_of = getattr(model, "n_steps", 1) * self.num_envs  # number of steps of a rollout, which is always completed
        model.learn((session.steps_left - self.shown) // round_of * round_of)
        return self.acting(model)

    @abstractmethod
    def make(self, envs: ConstructVecEnv, seed: int) -> Any:
        """An untrained model for these environments."""

    def acting(self, model: Any) -> Act:
        """The model's policy in one environment. It ignores the legal actions."""

        def act(observation: Any, legal: np.ndarray, greedy: bool) -> int:
            return int(model.predict(observation, deterministic=greedy)[0])

        return act


@dataclass(frozen=True)
class ScratchPpo(Sb3):
    """PPO of stable-baselines3 in `Construct-v0`. It has no action masks."""

    def make(self, envs: ConstructVecEnv, seed: int) -> PPO:
        """An untrained PPO with the settings of the module's docstring."""
        return PPO("MlpPolicy", envs, n_steps=2048 // self.num_envs, batch_size=512, seed=seed, device="cpu")


@dataclass(frozen=True)
class ScratchDqn(Sb3):
    """DQN of stable-baselines3 in `Construct-v0`. It has no action masks."""

    num_envs: int = 16

    def make(self, envs: ConstructVecEnv, seed: int) -> DQN:
        """An untrained DQN with the settings of the module's docstring."""
        return DQN("MlpPolicy", envs, buffer_size=50_000, batch_size=128, train_freq=1, seed=seed, device="cpu")


@dataclass(frozen=True)
class ScratchMaskedPpo(Sb3):
    """MaskablePPO of sb3-contrib in `Construct-v0`, whose actions are primitives."""

    def make(self, envs: ConstructVecEnv, seed: int) -> MaskablePPO:
        """An untrained MaskablePPO with the settings of the module's docstring."""
        return MaskablePPO("MlpPolicy", envs, n_steps=2048 // self.num_envs, batch_size=512, seed=seed, device="cpu")

    def acting(self, model: Any) -> Act:
        """The model's policy in one environment. It takes only legal actions."""

        def act(observation: Any, legal: np.ndarray, greedy: bool) -> int:
            return int(model.predict(observation, action_masks=legal, deterministic=greedy)[0])

        return act


@dataclass(frozen=True)
class ScratchMaskedWriting(ScratchMaskedPpo):
    """MaskablePPO of sb3-contrib in `Write-v0`."""

    def environment(self) -> dict[str, Any]:
        """Choose `Write-v0` with sizes as choices; there are 256 sizes.

        With whole columns, choices would be more than a thousand, and a run would be four times as expensive.
        """
        return {"name": WRITE}
