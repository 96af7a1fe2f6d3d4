"""Algorithms of stable-baselines3 and sb3-contrib, trained on one task from scratch with their defaults.

Expensive settings differ: rollouts of PPO have the default 2,048 steps in total, from 32 environments, in minibatches of 512
instead of 64. DQN learns from 128 transitions for every 16 steps instead of 32 for every 4, which is the same ratio, and its
buffer is no larger than the number of steps. PPO and DQN have no masks and may choose illegal actions; each costs a step.
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
    """Base of agents that train an algorithm of stable-baselines3 or sb3-contrib on one task from scratch."""

    num_envs: int = 32

    def learn(self, session: LearningSession, seed: int) -> Act:
        """Train a model of the algorithm; return its predictions as the policy."""
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
        """Make an untrained model for these environments."""

    def acting(self, model: Any) -> Act:
        """Return the model as a policy in one environment, which ignores the mask of legal actions."""

        def act(observation: Any, legal: np.ndarray, greedy: bool) -> int:
            return int(model.predict(observation, deterministic=greedy)[0])

        return act


@dataclass(frozen=True)
class ScratchPpo(Sb3):
    """PPO of stable-baselines3 in `Construct-v0`, without action masks, trained on one task from scratch."""

    def make(self, envs: ConstructVecEnv, seed: int) -> PPO:
        """Make an untrained PPO with the settings that the module describes."""
        return PPO("MlpPolicy", envs, n_steps=2048 // self.num_envs, batch_size=512, seed=seed, device="cpu")


@dataclass(frozen=True)
class ScratchDqn(Sb3):
    """DQN of stable-baselines3 in `Construct-v0`, without action masks, trained on one task from scratch."""

    num_envs: int = 16

    def make(self, envs: ConstructVecEnv, seed: int) -> DQN:
        """Make an untrained DQN with the settings that the module describes."""
        return DQN("MlpPolicy", envs, buffer_size=50_000, batch_size=128, train_freq=1, seed=seed, device="cpu")


@dataclass(frozen=True)
class ScratchMaskedPpo(Sb3):
    """MaskablePPO of sb3-contrib in `Construct-v0`, whose actions are primitives, trained on one task from scratch."""

    def make(self, envs: ConstructVecEnv, seed: int) -> MaskablePPO:
        """Make an untrained MaskablePPO with the settings that the module describes."""
        return MaskablePPO("MlpPolicy", envs, n_steps=2048 // self.num_envs, batch_size=512, seed=seed, device="cpu")

    def acting(self, model: Any) -> Act:
        """Return the model as a policy in one environment, which takes only legal actions."""

        def act(observation: Any, legal: np.ndarray, greedy: bool) -> int:
            return int(model.predict(observation, action_masks=legal, deterministic=greedy)[0])

        return act


@dataclass(frozen=True)
class ScratchMaskedWriting(ScratchMaskedPpo):
    """MaskablePPO of sb3-contrib in `Write-v0`, which writes whole programs, trained on one task from scratch."""

    def environment(self) -> dict[str, Any]:
        """Choose `Write-v0` with sizes as actions; there are 256 sizes.

        With whole columns, actions would be more than a thousand, and a run would be four times as expensive.
        """
        return {"name": WRITE}
