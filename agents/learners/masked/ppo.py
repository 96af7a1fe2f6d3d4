"""MaskablePPO as learners: proximal policy optimisation (Schulman et al. 2017) that never takes an illegal action.

Masking (sb3-contrib) follows Huang and Ontanon (2022). `ppo` has a flat perceptron, `ppo_axes` sees the loop nest as a set of
axes, and `ppo_successors` scores the programs that actions lead to (see `agents.learners.networks`, `agents.learners.observer`).
These three networks are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from torch import nn

from agents.learners.feature_groups import of_groups
from agents.learners.former import former_names
from agents.learners.masked.policy import MaskedBuffer, MaskedPolicy
from agents.learners.networks import ActorCritic
from agents.learners.observer import NUM_LOOKAHEAD_FEATURES, LookaheadObserver, Observer, lookahead_actions
from agents.learners.registry import Learner

_OF_PPO = (
    "n_steps", "batch_size", "n_epochs", "ent_coef", "vf_coef", "gae_lambda", "clip_range", "target_kl", "max_grad_norm",
    "normalize_advantage",
)  # fmt: skip


class NetworkPolicy(MaskedPolicy):
    """Policy whose actor and critic are an `ActorCritic` network, which outputs the logits itself."""

    def __init__(self, *args: Any, network: dict[str, Any], **kwargs: Any) -> None:
        self.network = network
        super().__init__(*args, **kwargs)

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor: Any = ActorCritic(**self.network)

    def _build(self, lr_schedule: Any) -> None:
        """Build the networks and the optimiser like the base class, but with small initial logits and no layer after them."""
        super()._build(lr_schedule)
        self.action_net = nn.Identity()
        for last in self.mlp_extractor.last_layers():
            nn.init.orthogonal_(last.weight, 0.01)
        optimizer: Any = self.optimizer_class
        self.optimizer = optimizer(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return super()._get_constructor_parameters() | {"network": self.network}


def make(settings: Mapping[str, Any], env: Any, seed: int | None) -> MaskablePPO:
    """Make an untrained MaskablePPO with a flat multi-layer perceptron. Gamma is the environment's discount."""
    looking = of_groups(settings) if settings.get("groups") else {}
    return make_with(MaskedPolicy, {"net_arch": list(settings["net_arch"]), **looking}, settings, env, seed)


def make_axes(settings: Mapping[str, Any], env: Any, seed: int | None) -> MaskablePPO:
    """Make an untrained MaskablePPO whose network treats the axes of the flat observation as a set."""
    network = {"width": settings["width"], "axes": True, "actions": [], "features": 0, **hidden(settings)}
    return make_with(NetworkPolicy, {"network": network}, settings, env, seed)


def make_successors(settings: Mapping[str, Any], env: Any, seed: int | None) -> MaskablePPO:
    """Make an untrained MaskablePPO that scores the programs to which actions lead (successors).

    With the setting `axes` it encodes the state like `ppo_axes`.
    """
    actions = lookahead_actions(env.get_attr("tasks")[0].space).tolist()
    network = {
        "width": settings["width"], "axes": settings["axes"], "actions": actions, "features": NUM_LOOKAHEAD_FEATURES,
        **hidden(settings),
    }  # fmt: skip
    return make_with(NetworkPolicy, {"network": network}, settings, env, seed)


def hidden(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the network's keyword argument `hidden` (groups of features) from the setting of that name, by default empty."""
    return {"hidden": tuple(settings.get("hidden") or ())}


def make_with(policy: Any, network: dict[str, Any], settings: Mapping[str, Any], env: Any, seed: int | None) -> MaskablePPO:
    """Make an untrained MaskablePPO of a policy class, whose keyword arguments are `network`."""
    chosen = {name: settings[name] for name in _OF_PPO if name in settings}
    return MaskablePPO(
        policy, env, rollout_buffer_class=MaskedBuffer, gamma=env.discount, learning_rate=schedule(settings),
        policy_kwargs=network, seed=seed, device="cpu", **chosen,
    )  # fmt: skip


def schedule(settings: Mapping[str, Any]) -> Any:
    """Return the learning rate or, with a `final_learning_rate`, a linear schedule from the first to the last rate."""
    first, last = settings["learning_rate"], settings.get("final_learning_rate")
    return first if last is None else Line(float(first), float(last))


class Line:
    """Linear schedule of a learning rate; stable-baselines3 calls it with the remaining share of the training, from 1 to 0."""

    def __init__(self, first: float, last: float) -> None:
        self.first, self.last = first, last

    def __call__(self, left: float) -> float:
        """Return the rate when the share `left` of the training remains."""
        return self.last + (self.first - self.last) * left


def load(path: Path) -> MaskablePPO:
    """Load the model in a stable-baselines3 file, on the CPU. Code in the file can run."""
    with former_names():
        return MaskablePPO.load(path, device="cpu")


def logits(model: MaskablePPO, observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Return the log-probabilities [B, N] of the actions, -inf for illegal actions."""
    with torch.no_grad():
        masked: Any = model.policy.get_distribution(torch.as_tensor(observations), action_masks=masks)
    return np.where(masks, masked.distribution.logits.numpy(), -np.inf)


def values(model: MaskablePPO, observations: np.ndarray) -> np.ndarray:
    """Return the critic's values [B] of observations [B, O]."""
    with torch.no_grad():
        return model.policy.predict_values(torch.as_tensor(observations)).numpy().ravel()


PPO = Learner(make, load, logits, values)
PPO_AXES = Learner(make_axes, load, logits, values, Observer)
PPO_SUCCESSORS = Learner(make_successors, load, logits, values, LookaheadObserver)
