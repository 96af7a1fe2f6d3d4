"""Behaviour cloning on the data set of `gensor minari operators=100`; MaskablePPO can train the cloned policy further."""

import os

import minari
import numpy as np
import torch
from sb3_contrib import MaskablePPO

import gensor_gym  # noqa: F401  (registers the environments)

os.environ.setdefault("MINARI_DATASETS_PATH", "outputs/minari")


def clone(name="gensor_gym/zen4_1c-train-sizes-v1", best=0.25, epochs=10, seed=0):
    """Train a policy to imitate the best episodes: the share `best` of each operator's, by return.

    Return (model, last loss of every epoch).
    """
    dataset = minari.load_dataset(name)
    told = [one["options"]["operator"] for one in dataset.storage.get_episode_metadata(range(dataset.total_episodes))]
    of = {operator: [] for operator in told}
    for episode, operator in zip(dataset.iterate_episodes(), told, strict=True):
        of[operator].append(episode)
    kept = (sorted(own, key=lambda one: -one.rewards.sum())[: round(best * len(own)) or 1] for own in of.values())
    parts = ((one.observations[:-1], one.infos["action_mask"][:-1], one.actions) for own in kept for one in own)
    seen, masks, actions = map(np.concatenate, zip(*parts, strict=True))
    model = MaskablePPO("MlpPolicy", dataset.recover_environment(), gamma=1.0, seed=seed, device="cpu")
    losses = []
    for order in map(np.random.default_rng(seed).permutation, [len(actions)] * epochs):
        for some in np.array_split(order, max(1, len(order) // 256)):
            _, log_probability, _ = model.policy.evaluate_actions(*map(torch.as_tensor, (seen[some], actions[some])), masks[some])
            model.policy.optimizer.zero_grad()
            (loss := -log_probability.mean()).backward()
            model.policy.optimizer.step()
        losses.append(loss.item())
    return model, losses


if __name__ == "__main__":
    clone()[0].save("outputs/cloned")
