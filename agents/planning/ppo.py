"""PPO (Schulman et al., arXiv 1707.06347) of the graph network in `gensor_gym/Fuse-v0`, and the policy as a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from gymnasium.spaces import GraphInstance

from agents.planning.graph_network import OBSERVED, Batch, GraphPolicy, batched, drawn
from agents.planning.searches import Search, Walker, ways
from gensor_gym.env.planning.env import FuseVectorEnv
from gensor_gym.hardware.types import Hardware


@dataclass(frozen=True)
class Settings:
    """Settings of PPO, which has discount 1. They were chosen by hand on networks of the part `validation`."""

    envs: int = 16
    steps: int = 64
    """Steps of each environment between two updates."""
    epochs: int = 3
    minibatch: int = 256
    learning_rate: float = 2e-3
    clip: float = 0.2
    trace: float = 0.95
    """Lambda of the generalised advantage estimate."""
    entropy: float = 0.01


class Step(NamedTuple):
    """One step of all environments; in `advance`, T steps stacked."""

    seen: tuple[GraphInstance, ...]
    masks: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    values: np.ndarray
    """Values of the states before the step, by the policy."""
    ended: np.ndarray
    over: np.ndarray
    """Whether the step only reset the environment."""
    logs: np.ndarray
    """Log probabilities of the actions."""


class Learner:
    """A policy in training on random networks; one seed gives one policy."""

    def __init__(self, networks: Sequence[str], hardware: Hardware, seed: int, settings: Settings | None = None) -> None:
        """Start episodes of the named networks."""
        torch.manual_seed(seed)
        self.settings = settings or Settings()
        self.rng, self.policy = np.random.default_rng(seed), GraphPolicy()
        self.envs = FuseVectorEnv(
            self.settings.envs, list(networks), hardware, observation="graph", observation_groups=OBSERVED, step_cost=0.0
        )
        self.seen, info = self.envs.reset(seed=seed)
        self.masks, self.over = info["action_mask"], np.zeros(self.settings.envs, bool)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), self.settings.learning_rate)

    def advance(self, share: float) -> float:
        """Play and update once; return the mean reward of a step. The rate falls with `share`, the finished part of training."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * (1.0 - share)
        played = [self._step() for _ in range(self.settings.steps)]
        with torch.no_grad():
            last = self.policy(batched(self.seen, self.masks))[1].numpy()
        every = Step((), *(np.array(column) for column in zip(*(step[1:] for step in played), strict=True)))  # [T, B, ..]
        gained = _advantages(every, last, self.settings.trace)
        self._update([graph for step in played for graph in step.seen], every, gained)
        return float(every.rewards[~every.over].mean())

    def _step(self) -> Step:
        with torch.no_grad():
            logs, values = (found.numpy() for found in self.policy(batched(self.seen, self.masks)))
        actions = (logs + self.rng.gumbel(size=logs.shape)).argmax(axis=1)
        before, masks, over = self.seen, self.masks.copy(), self.over
        self.seen, rewards, ended, _, info = self.envs.step(actions)
        self.masks, self.over = info["action_mask"], ended.copy()
        rewards = np.where(ended, 0.0, rewards)  # of `stop`: a constant of the network, as the discount is 1
        return Step(before, masks, actions, rewards, values, ended, over, logs[np.arange(len(actions)), actions])

    def _update(self, graphs: list[GraphInstance], every: Step, advantages: np.ndarray) -> None:
        masks, gained = every.masks.reshape(-1, every.masks.shape[-1]), advantages.ravel()
        actions, logs, returns = every.actions.ravel(), every.logs.ravel(), (advantages + every.values).ravel()
        for _ in range(self.settings.epochs):
            order = self.rng.permutation(np.flatnonzero(~every.over))
            for some in np.array_split(order, max(1, len(order) // self.settings.minibatch)):
                batch = batched([graphs[place] for place in some], masks[some])
                norm = (gained[some] - gained[some].mean()) / (gained[some].std() + 1e-8)
                parts = (actions[some], logs[some], norm, returns[some])
                loss = self._loss(batch, *(torch.from_numpy(np.asarray(part)) for part in parts))
                self.optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
                self.optimizer.step()

    def _loss(
        self, batch: Batch, actions: torch.Tensor, before: torch.Tensor, gained: torch.Tensor, returns: torch.Tensor
    ) -> torch.Tensor:
        logs, values = self.policy(batch)
        ratio = (logs.gather(1, actions[:, None])[:, 0] - before).exp()
        clipped = ratio.clamp(1 - self.settings.clip, 1 + self.settings.clip)
        entropy = -(logs.exp() * logs.clamp(min=-50.0)).sum(1).mean()
        surrogate = torch.minimum(ratio * gained, clipped * gained).mean()
        return 0.5 * (values - returns.float()).square().mean() - surrogate - self.settings.entropy * entropy


def _advantages(every: Step, last: np.ndarray, trace: float) -> np.ndarray:
    """Return generalised advantage estimates [T, B], 0 for steps that only reset. `last` [B] are values of the last states."""
    found, after, carried = np.zeros_like(every.rewards), last, np.zeros(len(last))
    for at in reversed(range(len(found))):
        goes_on = ~every.ended[at]
        gained = every.rewards[at] + goes_on * (after + trace * carried) - every.values[at]
        found[at] = carried = np.where(every.over[at], 0.0, gained)
        after = every.values[at]
    return found


def trained(networks: Sequence[str], hardware: Hardware, seed: int, updates: int) -> GraphPolicy:
    """Train a policy by `updates` updates on random networks, and return it."""
    learner = Learner(networks, hardware, seed)
    for number in range(updates):
        learner.advance(number / updates)
    return learner.policy


def by_policy(policy: GraphPolicy, episodes: int = 16, temperature: float = 2.0) -> Search:
    """Make a search by episodes of a policy: one of the most probable decisions, then `episodes` drawn ones at a time."""

    def search(walker: Walker, rng: np.random.Generator) -> None:
        count, heat = 1, 0.0
        while states := [walker.graph.first] * count if ways(walker.graph.first) else []:
            while states:
                actions = drawn(policy, walker.graph, states, heat, rng)
                reached = [walker.after(state, int(action)) for state, action in zip(states, actions, strict=True)]
                states = [state for state in reached if ways(state)]
            count, heat = episodes, temperature

    return search
