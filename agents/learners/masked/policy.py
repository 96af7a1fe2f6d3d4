"""Policy and rollout buffer for MaskablePPO that compute the same numbers as those of sb3-contrib with less work per minibatch.

Use `MaskablePPO(MaskedPolicy, envs, rollout_buffer_class=MaskedBuffer)`. sb3-contrib builds a distribution object for every
batch, normalises logits twice, validates arguments and keeps masks as float32. Here logits are masked and normalised once, and
masks stay bool. Networks, parameters, random numbers and files are those of sb3-contrib.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sb3_contrib.common.maskable.buffers import MaskableRolloutBuffer, MaskableRolloutBufferSamples
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy

MASKED = -1e8
"""Logit of an illegal action, as in sb3-contrib: the action's probability is exactly 0 in float32."""


class MaskedPolicy(MaskableActorCriticPolicy):
    """Actor-critic policy for one discrete action with a mask. The arguments are those of the base class."""

    def forward(
        self, obs: torch.Tensor, deterministic: bool = False, action_masks: np.ndarray | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Choose actions; return (actions int64 [B], values of the states [B, 1], log-probabilities of the actions [B])."""
        values, logs = self._values_and_logs(obs, action_masks)
        actions = logs.argmax(dim=1) if deterministic else torch.multinomial(logs.exp(), 1, True).squeeze(1)
        return actions, values, logs.gather(1, actions[:, None]).squeeze(1)

    def evaluate_actions(
        self, obs: torch.Tensor, actions: torch.Tensor, action_masks: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Evaluate given actions; return (values of the states [B, 1], log-probabilities of `actions` [B], entropies [B])."""
        values, logs = self._values_and_logs(obs, action_masks)
        return values, logs.gather(1, actions[:, None]).squeeze(1), -(logs.exp() * logs).sum(dim=1)

    def _values_and_logs(
        self, obs: torch.Tensor, masks: np.ndarray | torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        features: Any = self.extract_features(obs)
        latent_pi, latent_vf = self.mlp_extractor(features)
        logits = self.action_net(latent_pi)
        if masks is not None:
            legal = torch.as_tensor(masks, dtype=torch.bool, device=logits.device).view(logits.shape)
            logits = logits.masked_fill(~legal, MASKED)
        return self.value_net(latent_vf), torch.log_softmax(logits, dim=1)


class MaskedBuffer(MaskableRolloutBuffer):
    """Rollout buffer of MaskablePPO that stores masks as bool [T, B, N] instead of float32."""

    def reset(self) -> None:
        """Empty the buffer and allow all actions."""
        super().reset()
        self.action_masks = np.ones(self.action_masks.shape, dtype=np.bool_)

    def _get_samples(  # type: ignore[override]
        self, batch_inds: np.ndarray, env: Any = None
    ) -> MaskableRolloutBufferSamples:
        """Return the minibatch at the indices `batch_inds`. torch gathers the rows, because it is faster at this than NumPy."""
        chosen = torch.from_numpy(batch_inds)
        flat = (self.values, self.log_probs, self.advantages, self.returns)
        values, logs, advantages, returns = (torch.from_numpy(column).flatten()[chosen] for column in flat)
        obs, actions, masks = (torch.from_numpy(c)[chosen] for c in (self.observations, self.actions, self.action_masks))
        samples = (obs, actions, values, logs, advantages, returns, masks)
        return MaskableRolloutBufferSamples(*(tensor.to(self.device) for tensor in samples))
