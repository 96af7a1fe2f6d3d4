"""Offline learning on `gensor minari operators=100` by advantage-weighted regression (Peng et al., arXiv 1910.00177)."""

import os

import minari
import numpy as np
import torch
from sb3_contrib import MaskablePPO

import gensor_gym  # noqa: F401  (registers the environments)

os.environ.setdefault("MINARI_DATASETS_PATH", "outputs/minari")


def learn(name="gensor_gym/zen4_1c-train-sizes-v1", beta=0.1, most=20.0, epochs=10, seed=0):
    """Train a policy on all actions of the data set, weighted by exp((return - value) / beta), at most `most`.

    Return (model, squared error of the values in the last batch).
    """
    dataset = minari.load_dataset(name)
    parts = (
        (one.observations[:-1], one.infos["action_mask"][:-1], one.actions, one.rewards[::-1].cumsum()[::-1])
        for one in dataset.iterate_episodes()
    )
    seen, masks, actions, returns = map(np.concatenate, zip(*parts, strict=True))
    model = MaskablePPO("MlpPolicy", dataset.recover_environment(), gamma=1.0, seed=seed, device="cpu")
    for order in map(np.random.default_rng(seed).permutation, [len(actions)] * epochs):
        for some in np.array_split(order, max(1, len(order) // 256)):
            told = map(torch.as_tensor, (seen[some], actions[some]))
            values, log_probability, _ = model.policy.evaluate_actions(*told, masks[some])
            advantages = torch.as_tensor(returns[some], dtype=torch.float32) - values.flatten()
            weights = (advantages.detach() / beta).exp().clamp(max=most)
            model.policy.optimizer.zero_grad()
            (advantages.square().mean() - (weights * log_probability).mean()).backward()
            model.policy.optimizer.step()
    return model, advantages.square().mean().item()


if __name__ == "__main__":
    learn()[0].save("outputs/offline")
