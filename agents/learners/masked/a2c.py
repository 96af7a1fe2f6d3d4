"""`a2c`: advantage actor-critic (Mnih et al. 2016, arXiv 1602.01783) that takes only legal actions.

It is MaskablePPO with the settings and the optimiser of A2C, RMSProp, because sb3-contrib has no masked A2C. One epoch of PPO
with the whole rollout as one batch, without clipping and without normalised advantages, is a step of A2C: the ratio of
probabilities is 1, and the ratio's gradient is that of the log-probability (Huang et al. 2022, arXiv 2205.09123).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from sb3_contrib import MaskablePPO

from agents.learners.feature_groups import of_groups
from agents.learners.masked.ppo import load, logits, values
from agents.learners.registry import Learner

_NO_CLIPPING = 1e9
_SETTINGS = ("learning_rate", "n_steps", "gae_lambda", "ent_coef", "vf_coef", "max_grad_norm")


def make(settings: Mapping[str, Any], env: Any, seed: int | None) -> MaskablePPO:
    """Make an untrained MaskablePPO with A2C's settings. Gamma is the environment's discount."""
    policy = {
        "net_arch": list(settings["net_arch"]), "optimizer_class": torch.optim.RMSprop,
        "optimizer_kwargs": {"alpha": 0.99, "eps": 1e-5, "weight_decay": 0},
        **(of_groups(settings) if settings.get("groups") else {}),
    }  # fmt: skip
    return MaskablePPO(
        "MlpPolicy", env, gamma=env.discount, n_epochs=1, batch_size=settings["n_steps"] * env.num_envs,
        clip_range=_NO_CLIPPING, normalize_advantage=False, policy_kwargs=policy, seed=seed, device="cpu",
        **{name: settings[name] for name in _SETTINGS if name in settings},
    )  # fmt: skip


A2C = Learner(make, load, logits, values)
