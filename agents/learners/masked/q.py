"""Q-learning over legal actions: `dqn` (Mnih et al. 2015) and `qrdqn` (Dabney et al. 2018, arXiv 1710.10044).

stable-baselines3 and sb3-contrib have these two without masks; we add masks to their classes. The mask is part of the
observation, so that the replay buffer also keeps the next state's mask. A network returns -1e8 (`ILLEGAL`) for masked actions, so
that the best action is legal both in acting and in the target. Exploration draws among legal actions, independently in every
environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib import QRDQN
from sb3_contrib.qrdqn.policies import QRDQNPolicy, QuantileNetwork
from stable_baselines3 import DQN
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvStepReturn, VecEnvWrapper
from stable_baselines3.dqn.policies import DQNPolicy, QNetwork

from agents.learners.feature_groups import of_groups
from agents.learners.former import former_names
from agents.learners.registry import Learner

ILLEGAL = -1e8
"""Value of a masked action. It is finite because the target multiplies values by 0 at the end of an episode."""
_SETTINGS = (
    "learning_rate", "buffer_size", "learning_starts", "batch_size", "tau", "train_freq", "gradient_steps",
    "target_update_interval", "exploration_fraction", "exploration_initial_eps", "exploration_final_eps", "max_grad_norm",
)  # fmt: skip


class MaskedObservations(VecEnvWrapper):
    """Add masks to the observations of environments with `action_masks`: {"observation": .., "mask": int8 [B, N]}."""

    def __init__(self, venv: VecEnv) -> None:
        actions = venv.action_space
        if not isinstance(actions, spaces.Discrete):
            raise ValueError(f"action space {actions} has no masks; expected a Discrete one")
        self.actions = int(actions.n)
        space = spaces.Dict({"observation": venv.observation_space, "mask": spaces.MultiBinary(self.actions)})
        super().__init__(venv, observation_space=space)

    def reset(self) -> Any:
        """Reset the environments; return the first observations with masks."""
        return self._with_masks(self.venv.reset())

    def step_wait(self) -> VecEnvStepReturn:
        """Step the environments and add masks. The mask of a terminal state is all ones, because its value is not used."""
        observations, rewards, ended, infos = self.venv.step_wait()
        for i in np.flatnonzero(ended):
            last = infos[i]["terminal_observation"]
            infos[i]["terminal_observation"] = {"observation": last, "mask": np.ones(self.actions, dtype=np.int8)}
        return self._with_masks(observations), rewards, ended, infos

    def _with_masks(self, observations: Any) -> dict[str, Any]:
        return {"observation": observations, "mask": np.stack(self.venv.env_method("action_masks")).astype(np.int8)}


class MaskedQNetwork(QNetwork):
    """Q-network that returns a very low value (`ILLEGAL`) for masked actions."""

    def forward(self, obs: Any) -> torch.Tensor:
        """Return the values [B, N] of the actions, `ILLEGAL` where the mask is 0."""
        return torch.where(obs["mask"] > 0, super().forward(obs), ILLEGAL)


class MaskedQuantileNetwork(QuantileNetwork):
    """Quantile network that returns very low quantiles (`ILLEGAL`) for masked actions."""

    def forward(self, obs: Any) -> torch.Tensor:
        """Return the quantiles [B, Q, N] of the actions' values, all `ILLEGAL` where the mask is 0."""
        return torch.where((obs["mask"] > 0).unsqueeze(1), super().forward(obs), ILLEGAL)


class MaskedDQNPolicy(DQNPolicy):
    """DQN policy whose value network and target network use masks."""

    def make_q_net(self) -> QNetwork:
        """Make the value network or the target network."""
        return MaskedQNetwork(**self._update_features_extractor(self.net_args, features_extractor=None)).to(self.device)


class MaskedQRDQNPolicy(QRDQNPolicy):
    """QR-DQN policy whose quantile network and target network use masks."""

    def make_quantile_net(self) -> QuantileNetwork:
        """Make the quantile network or the target network."""
        return MaskedQuantileNetwork(**self._update_features_extractor(self.net_args, features_extractor=None)).to(self.device)


class LegalExploration:
    """Mixin for epsilon-greedy exploration among legal actions. Draws use NumPy's global generator, as in stable-baselines3."""

    policy: Any
    exploration_rate: float
    num_timesteps: int
    _last_obs: Any

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        """Choose legal actions; return (actions, state).

        Without `deterministic`, each action is random with probability `exploration_rate`, otherwise the best.
        """
        actions, state = self.policy.predict(observation, state, episode_start, True)
        if deterministic:
            return actions, state
        explores = np.random.rand(*np.shape(actions)) < self.exploration_rate
        return np.where(explores, random_legal(observation["mask"]), actions), state

    def _sample_action(self, learning_starts: int, action_noise: Any = None, n_envs: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Choose legal actions for the replay buffer: random before `learning_starts` steps, then those of `predict`.

        Return the actions twice: as they are taken, and as they are stored.
        """
        if self.num_timesteps < learning_starts:
            actions = random_legal(self._last_obs["mask"])
        else:
            actions, _ = self.predict(self._last_obs)
        return actions, actions


class MaskedDQN(LegalExploration, DQN):
    """DQN over legal actions, with observations of `MaskedObservations`."""


class MaskedQRDQN(LegalExploration, QRDQN):
    """Quantile DQN over legal actions, with observations of `MaskedObservations`."""


def random_legal(masks: np.ndarray) -> np.ndarray:
    """Draw one legal action for every mask [.., N], all with equal probability."""
    return np.where(masks > 0, np.random.rand(*masks.shape), -1.0).argmax(axis=-1)


def _arguments(settings: Mapping[str, Any], env: Any, seed: int | None, more: dict[str, Any]) -> dict[str, Any]:
    policy = {"net_arch": list(settings["net_arch"]), **of_groups(settings), **more}
    return {
        "env": MaskedObservations(env), "gamma": env.discount, "policy_kwargs": policy, "seed": seed, "device": "cpu",
        **{name: settings[name] for name in _SETTINGS if name in settings},
    }  # fmt: skip


def action_values(model: Any, observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Return the expected return float64 [B, N] of every action (the mean of its quantiles), -inf for illegal actions."""
    observed = {"observation": torch.as_tensor(observations), "mask": torch.as_tensor(masks)}
    with torch.no_grad():
        found = model.q_net(observed) if isinstance(model, DQN) else model.quantile_net(observed).mean(dim=1)
    return np.where(masks, found.double().numpy(), -np.inf)


def logits(model: Any, observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Return the log-probabilities [B, N] of the Boltzmann distribution over action values.

    Q-learners have no other stochastic policy.
    """
    scaled = action_values(model, observations, masks) / TEMPERATURE
    above = scaled - scaled.max(axis=1, keepdims=True)
    return above - np.log(np.exp(above).sum(axis=1, keepdims=True))


TEMPERATURE = 0.05
"""Temperature of `logits`, in units of the return. 0.05 is the difference to a kernel that takes 5 percent longer."""


def values(model: Any, observations: np.ndarray) -> np.ndarray:
    """Return the largest action value float [B] of each observation, over illegal actions too, because no mask is available."""
    return action_values(model, observations, np.ones((len(observations), model.action_space.n), dtype=bool)).max(axis=1)


def _learner(model: Any, policy: type, *of_policy: str) -> Learner:
    """Make the learner of the class `model` (MaskedDQN or MaskedQRDQN).

    Its policy takes the settings `of_policy` in addition to the common settings. Gamma is the environment's discount.
    """

    def make(settings: Mapping[str, Any], env: Any, seed: int | None) -> Any:
        return model(policy, **_arguments(settings, env, seed, {name: settings[name] for name in of_policy}))

    def load(path: Path) -> Any:
        with former_names():
            return model.load(path, device="cpu")

    return Learner(make, load, logits, values)


DQN_LEARNER = _learner(MaskedDQN, MaskedDQNPolicy)
QRDQN_LEARNER = _learner(MaskedQRDQN, MaskedQRDQNPolicy, "n_quantiles")
