"""PPO (arXiv 1707.06347) in one file, in CleanRL's manner: one loop to read from top to bottom, no framework.

Any environment of Gymnasium with flat observations and discrete actions will do, for example `--env-id CartPole-v1`. With
--masks the policy takes only actions that are legal by `info["action_mask"]`, which Gymnasium's own Taxi has too.
"""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from torch import nn
from torch.distributions import Categorical


@dataclass
class Arguments:
    """Settings; each is an option of the command line, such as --env-id."""

    env_id: str = "gensor_gym:gensor_gym/Construct-v0"
    num_envs: int = 32
    num_steps: int = 64
    total_steps: int = 100_000
    epochs: int = 4
    minibatches: int = 4
    learning_rate: float = 1e-3
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01
    value: float = 0.5
    max_norm: float = 0.5
    seed: int = 0
    masks: bool = False


class Agent(nn.Module):
    """Networks for the policy and for the value of states, each with two hidden layers."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.actor, self.critic = self._network(inputs, actions, 0.01), self._network(inputs, 1, 1.0)

    @staticmethod
    def _network(inputs: int, outputs: int, scale: float) -> nn.Sequential:
        layers = [nn.Linear(inputs, 64), nn.Linear(64, 64), nn.Linear(64, outputs)]
        for layer, gain in zip(layers, (2**0.5, 2**0.5, scale), strict=True):
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)
        return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])

    def forward(self, observations: torch.Tensor, masks: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        """Return a distribution over the actions that the masks [B, N] allow, and the values [B] of the states."""
        logits = self.actor(observations).masked_fill(~masks, -1e8)
        return Categorical(logits=logits), self.critic(observations).squeeze(-1)


def allowed(info: dict[str, Any], envs: gymnasium.vector.VectorEnv, args: Arguments) -> torch.Tensor:
    """Return masks bool [B, N] of legal actions: the environment's if `args.masks`, otherwise all true."""
    if args.masks:
        return torch.as_tensor(np.stack(info["action_mask"]), dtype=torch.bool)
    return torch.ones((envs.num_envs, int(envs.single_action_space.n)), dtype=torch.bool)


def advantages_of(batch: dict[str, torch.Tensor], values: torch.Tensor, args: Arguments) -> torch.Tensor:
    """Return generalised advantage estimates [T, B] from values [T + 1, B] (arXiv 1506.02438).

    Gymnasium's mode NEXT_STEP resets an ended episode at the next step. So the observation after `ended` is the episode's last
    one. Its value counts if the episode was truncated, and not if it terminated.
    """
    found, last = torch.zeros_like(batch["rewards"]), torch.zeros(values.shape[1])
    for t in reversed(range(args.num_steps)):
        after = values[t + 1] * (1.0 - batch["terminated"][t])
        error = batch["rewards"][t] + args.gamma * after - values[t]
        last = error + args.gamma * args.gae_lambda * (1.0 - batch["ended"][t]) * last
        found[t] = last
    return found


def update(agent: Agent, optimizer: torch.optim.Optimizer, batch: dict[str, torch.Tensor], args: Arguments) -> None:
    """Train for `args.epochs` epochs on a batch of transitions [M, ..] with PPO's clipped loss."""
    count = len(batch["actions"])
    for _ in range(args.epochs):
        for chosen in torch.randperm(count).chunk(args.minibatches):
            part = {name: values[chosen] for name, values in batch.items()}
            policy, values = agent(part["observations"], part["masks"])
            ratio = (policy.log_prob(part["actions"]) - part["log_probs"]).exp()
            gain = (part["advantages"] - part["advantages"].mean()) / (part["advantages"].std() + 1e-8)
            clipped = torch.min(ratio * gain, ratio.clamp(1 - args.clip, 1 + args.clip) * gain).mean()
            loss = args.value * (values - part["returns"]).pow(2).mean() - clipped - args.entropy * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), args.max_norm)
            optimizer.step()


def train(args: Arguments) -> list[float]:
    """Train an agent; return the mean return of the episodes that ended, for each iteration in which some did."""
    torch.manual_seed(args.seed)
    envs = RecordEpisodeStatistics(gymnasium.make_vec(args.env_id, num_envs=args.num_envs))
    inputs, actions = int(np.prod(envs.single_observation_space.shape)), int(envs.single_action_space.n)
    agent = Agent(inputs, actions)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    seen, info = envs.reset(seed=args.seed)
    ended, curve = torch.zeros(args.num_envs), []
    for iteration in range(1, max(1, args.total_steps // (args.num_envs * args.num_steps)) + 1):
        steps, returns = [], []
        for _ in range(args.num_steps):
            step = {"observations": torch.as_tensor(seen), "masks": allowed(info, envs, args), "valid": ended == 0}
            with torch.no_grad():
                policy, step["values"] = agent(step["observations"], step["masks"])
            step["actions"] = policy.sample()
            step["log_probs"] = policy.log_prob(step["actions"])
            seen, rewards, terminated, truncated, info = envs.step(step["actions"].numpy())
            ended = torch.as_tensor(terminated | truncated, dtype=torch.float32)
            step |= {"rewards": torch.as_tensor(rewards, dtype=torch.float32), "ended": ended}
            steps.append(step | {"terminated": torch.as_tensor(terminated, dtype=torch.float32)})
            if "episode" in info:
                returns.extend(info["episode"]["r"][info["_episode"]])
        batch = {name: torch.stack([step[name] for step in steps]) for name in steps[0]}
        with torch.no_grad():
            last = agent(torch.as_tensor(seen), allowed(info, envs, args))[1]
        batch["advantages"] = advantages_of(batch, torch.cat([batch["values"], last[None]]), args)
        batch["returns"] = batch["advantages"] + batch["values"]
        valid = batch.pop("valid")  # the step that resets an episode ignores its action
        update(agent, optimizer, {name: values[valid] for name, values in batch.items()}, args)
        if returns:
            curve.append(float(np.mean(returns)))
            print(f"{iteration * args.num_envs * args.num_steps:>8} steps  mean return {curve[-1]:.3f}")
    envs.close()
    return curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="PPO on any id of Gymnasium")
    for field in dataclasses.fields(Arguments):
        flag = "--" + field.name.replace("_", "-")
        if isinstance(field.default, bool):
            parser.add_argument(flag, action="store_true")
        else:
            parser.add_argument(flag, type=type(field.default), default=field.default)
    train(Arguments(**vars(parser.parse_args())))
