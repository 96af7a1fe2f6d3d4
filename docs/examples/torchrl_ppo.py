"""PPO from TorchRL's components on this environment, with masks: `pip install -e '.[lab,torchrl]'`.

`GymEnv` makes the environment from its id, an info reader copies `action_mask` into the TensorDict, and `MaskedCategorical`
draws only legal actions. Collector, advantages and loss are TorchRL's, as in its PPO tutorial.
"""

from __future__ import annotations

import argparse

import torch
from tensordict.nn import InteractionType, TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import Binary, Composite
from torchrl.envs import EnvBase, GymEnv, RewardSum, SerialEnv, TransformedEnv
from torchrl.envs.libs.gym import default_info_dict_reader
from torchrl.modules import MaskedCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

ID = "gensor_gym:gensor_gym/Construct-v0"
ENVIRONMENTS, STEPS, EPOCHS, MINIBATCHES = 8, 128, 4, 4


def make() -> EnvBase:
    """Make an environment whose TensorDicts contain `action_mask`."""
    env = GymEnv(ID, categorical_action_encoding=True)
    mask = Composite(action_mask=Binary(env.action_spec.n, dtype=torch.int8), shape=[])
    return env.set_info_dict_reader(default_info_dict_reader(["action_mask"], spec=mask))


def network(inputs: int, outputs: int, scale: float) -> nn.Sequential:
    """Return a network with two hidden layers; a small `scale` of its last weights makes the first policy near uniform."""
    last = nn.Linear(64, outputs)
    nn.init.orthogonal_(last.weight, scale)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), last)


def train(total_steps: int = 100_000, seed: int = 0) -> list[float]:
    """Train an agent; return the mean return of the episodes that ended, for each batch in which some did."""
    torch.manual_seed(seed)
    env = TransformedEnv(SerialEnv(ENVIRONMENTS, make), RewardSum())
    env.set_seed(seed)
    inputs, actions = env.observation_spec["observation"].shape[-1], env.full_action_spec_unbatched["action"].n
    legal = TensorDictModule(lambda mask: mask.bool(), ["action_mask"], ["legal"])
    logits = TensorDictModule(network(inputs, actions, 0.01), ["observation"], ["logits"])
    actor = ProbabilisticActor(
        TensorDictSequential(legal, logits), in_keys={"logits": "logits", "mask": "legal"},
        spec=env.full_action_spec_unbatched["action"], distribution_class=MaskedCategorical,
        return_log_prob=True, default_interaction_type=InteractionType.RANDOM,
    )  # fmt: skip
    critic = ValueOperator(network(inputs, 1, 1.0), in_keys=["observation"])
    advantage = GAE(gamma=1.0, lmbda=0.95, value_network=critic, average_gae=True)
    loss = ClipPPOLoss(actor, critic, clip_epsilon=0.2, entropy_coeff=0.01, critic_coeff=0.5)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3, eps=1e-5)
    collector = Collector(env, actor, frames_per_batch=ENVIRONMENTS * STEPS, total_frames=total_steps)
    curve, steps = list[float](), 0
    for batch in collector:
        steps += batch.numel()
        for _ in range(EPOCHS):
            with torch.no_grad():
                advantage(batch)
            flat = batch.reshape(-1)
            for part in torch.randperm(len(flat)).chunk(MINIBATCHES):
                found = loss(flat[part])
                total = found["loss_objective"] + found["loss_critic"] + found["loss_entropy"]
                optimizer.zero_grad()
                total.backward()
                nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                optimizer.step()
        ended = batch["next", "episode_reward"][batch["next", "done"]]
        if len(ended):
            curve.append(float(ended.mean()))
            print(f"{steps:>8} steps  mean return {curve[-1]:.3f}")
    collector.shutdown()
    return curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="PPO by TorchRL")
    parser.add_argument("--total-steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    train(**vars(parser.parse_args()))
