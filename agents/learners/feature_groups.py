"""A features extractor that passes on only some groups of the flat observation, for ablations of policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from gensor_gym.env.observation import group_slices


class Groups(BaseFeaturesExtractor):
    """Features extractor that keeps only the columns of some groups of the flat observation.

    Observations are float32 [B, O] or {"observation": .., ..}.
    """

    def __init__(self, observation_space: spaces.Space, groups: tuple[str, ...] | None = None) -> None:
        """Keep the columns of `groups`, which are names of `gensor_gym.env.observation.GROUPS`; None keeps all.

        ValueError names an unknown group.
        """
        flat = observation_space["observation"] if isinstance(observation_space, spaces.Dict) else observation_space
        total = int(np.prod(flat.shape or ()))
        slices = group_slices(groups).values()
        kept = np.arange(total) if groups is None else np.concatenate([np.arange(s.start, s.stop) for s in slices])
        super().__init__(observation_space, len(kept))
        self.register_buffer("kept", torch.as_tensor(kept), persistent=False)

    def forward(self, observations: Any) -> torch.Tensor:
        """Return the kept columns of the observations, float32 [B, K]."""
        flat = observations["observation"] if isinstance(observations, dict) else observations
        return flat.flatten(1)[:, self.kept]


def of_groups(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments that make a policy observe only an agent's setting `groups`."""
    groups = settings.get("groups")
    return {"features_extractor_class": Groups, "features_extractor_kwargs": {"groups": groups and tuple(groups)}}
