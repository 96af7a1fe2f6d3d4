"""Q-learning over legal actions: `dqn` (Mnih et al. 2015) and `qrdqn` (Dabney et al. 2018, arXiv 1710.10044).

stable-baselines3 and sb3-contrib have no masks there; these are ours, on their classes. The mask is a part of the observation. So
the replay buffer keeps the next state's mask as well, and a network answers ILLEGAL for masked actions: the best action is legal
both in acting and in the target. Exploration draws among legal actions, independently in every environment.
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
"""Value of an action that the mask forbids: finite, since the target multiplies it by zero where an episode is over."""
_SETTINGS = (
    "learning_rate", "buffer_size", "learning_starts", "batch_size", "tau", "train_freq", "gradient_steps",
    "target_update_interval", "exploration_fraction", "exploration_initial_eps", "exploration_final_eps", "max_grad_norm",
)  # fmt: skip


class MaskedObservations(VecEnvWrapper):
    """Observations {"observation", "mask" int8 [B, N]} of environments that answer `action_masks`."""

    def __init__(self, venv: VecEnv) -> None:
        """ValueError unless actions are discrete."""
        actions = venv.action_space
        if not isinstance(actions, spaces.Discrete):
            raise ValueError(f"action space {actions} has no masks; expected a Discrete one")
        self.actions = int(actions.n)
        space = spaces.Dict({"observation": venv.observation_space, "mask": spaces.MultiBinary(self.actions)})
        super().__init__(venv, observation_space=space)

    def reset(self) -> Any:
        """First observations and masks."""
        return self._with_masks(self.venv.reset())

    def step_wait(self) -> VecEnvStepReturn:
        """As of the wrapped environments. The mask of a terminal state is all ones: its value is not used."""
        observations, rewards, ended, infos = self.venv.step_wait()
        for i in np.flatnonzero(ended):
            last = infos[i]["terminal_observation"]
            infos[i]["terminal_observation"] = {"observation": last, "mask": np.ones(self.actions, dtype=np.int8)}
        return self._with_masks(observations), rewards, ended, infos

    def _with_masks(self, observations: Any) -> dict[str, Any]:
        """The pair."""
        return {"observation": observations, "mask": np.stack(self.venv.env_method("action_masks")).astype(np.int8)}


class MaskedQNetwork(QNetwork):
    """Values [B, N]."""

    def forward(self, obs: Any) -> torch.Tensor:
        """ILLEGAL where the mask is 0."""
        return torch.where(obs["mask"] > 0, super().forward(obs), ILLEGAL)


class MaskedQuantileNetwork(QuantileNetwork):
    """Quantiles [B, Q, N]."""

    def forward(self, obs: Any) -> torch.Tensor:
        """All quantiles are ILLEGAL for masked actions."""
        return torch.where((obs["mask"] > 0).unsqueeze(1), super().forward(obs), ILLEGAL)


class MaskedDQNPolicy(DQNPolicy):
    """Value and target networks with masks."""

    def make_q_net(self) -> QNetwork:
        """Make one of the two networks."""
        return MaskedQNetwork(**self._update_features_extractor(self.net_args, features_extractor=None)).to(self.device)


class MaskedQRDQNPolicy(QRDQNPolicy):
    """Quantile networks with masks."""

    def make_quantile_net(self) -> QuantileNetwork:
        """Make one of the two networks."""
        return MaskedQuantileNetwork(**self._update_features_extractor(self.net_args, features_extractor=None)).to(self.device)


class LegalExploration:
    """Epsilon-greedy among legal actions, drawn by NumPy's global stream as stable-baselines3 draws."""

    policy: Any
    exploration_rate: float
    num_timesteps: int
    _last_obs: Any

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        """Best legal actions; unless `deterministic`, each is a random legal one with probability `exploration_rate`."""
        actions, state = self.policy.predict(observation, state, episode_start, True)
        if deterministic:
            return actions, state
        explores = np.random.rand(*np.shape(actions)) < self.exploration_rate
        return np.where(explores, random_legal(observation["mask"]), actions), state

    def _sample_action(self, learning_starts: int, action_noise: Any = None, n_envs: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Random legal actions [B] until learning starts."""
        if self.num_timesteps < learning_starts:
            actions = random_legal(self._last_obs["mask"])
        else:
            actions, _ = self.predict(self._last_obs)
        return actions, actions


class MaskedDQN(LegalExploration, DQN):
    """DQN over legal actions; observations as of `MaskedObservations`."""


class MaskedQRDQN(LegalExploration, QRDQN):
    """Quantile DQN over legal actions; observations as of `MaskedObservations`."""


def random_legal(masks: np.ndarray) -> np.ndarray:
    """A legal action for every mask [.., N], all equally likely."""
    return np.where(masks > 0, np.random.rand(*masks.shape), -1.0).argmax(axis=-1)


def _arguments(settings: Mapping[str, Any], env: Any, seed: int | None, more: dict[str, Any]) -> dict[str, Any]:
    """Arguments of both constructors."""
    policy = {"net_arch": list(settings["net_arch"]), **of_groups(settings), **more}
    return {
        "env": MaskedObservations(env), "gamma": env.discount, "policy_kwargs": policy, "seed": seed, "device": "cpu",
        **{name: settings[name] for name in _SETTINGS if name in settings},
    }  # fmt: skip


def action_values(model: Any, observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Expected return of every action float64 [B, N], -inf if not legal; of quantiles the mean."""
    observed = {"observation": torch.as_tensor(observations), "mask": torch.as_tensor(masks)}
    with torch.no_grad():
        found = model.q_net(observed) if isinstance(model, DQN) else model.quantile_net(observed).mean(dim=1)
    return np.where(masks, found.double().numpy(), -np.inf)


def logits(model: Any, observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Log-probabilities of Boltzmann's distribution over the values: a Q-learner has no other policy to sample from."""
    scaled = action_values(model, observations, masks) / TEMPERATURE
    above = scaled - scaled.max(axis=1, keepdims=True)
    return above - np.log(np.exp(above).sum(axis=1, keepdims=True))


TEMPERATURE = 0.05
"""Temperature in units of the return: 0.05 is a kernel that takes 5 percent longer."""


def values(model: Any, observations: np.ndarray) -> np.ndarray:
    """Maximum Q over all actions; no mask is available."""
    return action_values(model, observations, np.ones((len(observations), model.action_space.n), dtype=bool)).max(axis=1)


def _learner(model: Any, policy: type, *of_policy: str) -> Learner:
    """The learner of a class; its policy takes the settings named in addition to the common ones.

    Gamma is the environment's discount.
    """

    def make(settings: Mapping[str, Any], env: Any, seed: int | None) -> Any:
        return model(policy, **_arguments(settings, env, seed, {name: settings[name] for name in of_policy}))

    def load(path: Path) -> Any:
        with former_names():
            return model.load(path, device="cpu")

    return Learner(make, load, logits, values)


DQN_LEARNER = _learner(MaskedDQN, MaskedDQNPolicy)
QRDQN_LEARNER = _learner(MaskedQRDQN, MaskedQRDQNPolicy, "n_quantiles")
